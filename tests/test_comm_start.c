/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other: by TCP at rank 0, and what goes wrong there. Ranks that
 * disagree are refused with both values named, on all ranks; strangers are refused and the
 * start goes on; who does not come is named.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/card.h"
#include "comm/meet.h"
#include "comm/wire.h"
#include "comm_util.h"

static struct team team;
static const char *method;

/* A port of the loopback that nobody has at the moment, and that no connection is given by
 * itself. */
static uint16_t
free_port(void)
{
    static uint16_t next;
    int rc = -1;

    for (int tries = 0; rc != 0 && tries < 1000; tries++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        assert_true(fd >= 0);
        next = next == 0 || next >= 32000 ? (uint16_t)(12000 + getpid() % 20000)
                                          : (uint16_t)(next + 1);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(next);
        rc = bind(fd, (struct sockaddr *)&address, sizeof(address));
        (void)close(fd);
    }
    assert_int_equal(rc, 0);
    return next;
}

static void
by_tcp(uint32_t n)
{
    uint16_t port = free_port();

    team_init(&team, method, n);
    for (uint32_t rank = 0; rank < n; rank++) {
        team.members[rank].opts.exchange = NULL;
        team.members[rank].opts.host = "127.0.0.1";
        team.members[rank].opts.port = port;
        team.members[rank].opts.start_timeout_ns = 10000 * MS;
    }
}

static void
test_tcp(void **state)
{
    (void)state;
    by_tcp(6);
    team_open(&team);
    for (uint32_t rank = 1; rank < 6; rank++)
        assert_int_equal(get_whole(&team, rank, rank - 1, 5000), 0);
    team_close(&team);
    by_tcp(3);
    for (uint32_t rank = 0; rank < 3; rank++)
        team.members[rank].opts.secret = "one that all of them know";
    team_open(&team);
    assert_int_equal(get_whole(&team, 2, 0, 5000), 0);
    team_close(&team);
}

static const struct sti_comm_value values[3][2] = {
    {{"data set", "4fd1"}, {"world batch", "64"}},
    {{"data set", "4fd1"}, {"world batch", "64"}},
    {{"data set", "9a02"}, {"world batch", "64"}},
};

static void
test_disagree(void **state)
{
    (void)state;
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        if (is_tcp)
            by_tcp(3);
        else
            team_init(&team, method, 3);
        for (uint32_t rank = 0; rank < 3; rank++) {
            team.members[rank].opts.values = values[rank];
            team.members[rank].opts.n_values = 2;
        }
        assert_int_equal(team_try(&team), STK_E_MISMATCH);
        for (uint32_t rank = 0; rank < 3; rank++) {
            const struct member *member = &team.members[rank];

            assert_int_equal(member->rc, STK_E_MISMATCH);
            assert_non_null(strstr(member->err.message, "data set is 9a02 on rank 2"));
            assert_non_null(strstr(member->err.message, "4fd1 on rank 0"));
            assert_null(member->comm);
        }
        assert_int_equal(team.members[0].err.rank, 2);
        team_close(&team);
    }
}

static void
test_other_world(void **state)
{
    (void)state;
    by_tcp(3);
    team.members[2].opts.world = 4;
    if (strcmp(method, "local") != 0) { /* the hub finds that out before */
        assert_int_equal(team_try(&team), STK_E_MISMATCH);
        assert_non_null(
            strstr(team.members[0].err.message, "number of ranks is 4 on rank 2 and 3"));
    }
    team_close(&team);
}

/* Rank 0 does not know the rank that has another secret, and waits for the right one. */
static void
test_secret(void **state)
{
    (void)state;
    by_tcp(3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        team.members[rank].opts.secret = rank == 1 ? "wrong" : "right";
        team.members[rank].opts.start_timeout_ns = 1500 * MS;
    }
    assert_true(team_try(&team) < 0);
    assert_int_equal(team.members[1].rc, -EACCES);
    assert_non_null(strstr(team.members[1].err.message, "secret"));
    assert_int_equal(team.members[0].rc, -ETIMEDOUT);
    assert_int_equal(team.members[0].err.rank, 1);
    assert_non_null(strstr(team.members[0].err.message, "rank 1"));
    assert_non_null(strstr(team.members[0].err.message, "refused 1"));
    assert_int_equal(team.members[2].rc, -ETIMEDOUT);
    team_close(&team);
}

static void
test_nobody(void **state)
{
    (void)state;
    by_tcp(3);
    team.n = 1; /* the others are not started */
    team.members[0].opts.start_timeout_ns = 200 * MS;
    assert_int_equal(team_try(&team), -ETIMEDOUT);
    assert_non_null(strstr(team.members[0].err.message, "rank 1, and 2 of 3"));
    assert_int_equal(team.members[0].err.rank, 1);
    team.n = 3;
    team_close(&team);
    by_tcp(2);
    team.members[0].opts.rank = 1; /* rank 0 is not there */
    team.n = 1;
    team.members[0].opts.start_timeout_ns = 200 * MS;
    assert_int_equal(team_try(&team), -ETIMEDOUT);
    assert_non_null(strstr(team.members[0].err.message, "cannot be reached"));
    team.n = 2;
    team_close(&team);
}

static void
test_options(void **state)
{
    struct sti_comm *comm;
    stk_error err;

    (void)state;
#define REFUSED(rc, ...)                                                                    \
    assert_int_equal(sti_comm_open(&comm, &(struct sti_comm_opts){__VA_ARGS__}, &err), rc); \
    assert_int_equal(err.code, rc);                                                         \
    assert_true(err.message[0] != '\0')
    REFUSED(-EINVAL, .world = 0);
    REFUSED(-EINVAL, .world = STI_COMM_RANKS_MAX + 1);
    REFUSED(-EINVAL, .world = 2, .rank = 2);
    REFUSED(-EINVAL, .world = 2, .host = "localhost");
    REFUSED(-EINVAL, .world = 1, .method = "pigeon");
    REFUSED(-EINVAL, .world = 2, .method = "local", .host = "localhost", .port = 1);
    REFUSED(-EINVAL, .world = 1, .secret = "");
    REFUSED(-EINVAL, .world = 1, .max_requests = STI_COMM_REQUESTS_MAX + 1);
    REFUSED(-EINVAL, .world = 1, .max_pending = STI_COMM_PENDING_MAX + 1);
    REFUSED(-EINVAL, .world = 1, .n_values = STI_COMM_VALUES_MAX + 1,
            .values = (const struct sti_comm_value[STI_COMM_VALUES_MAX + 1]){{"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"},
                                                                             {"a", "b"}});
#undef REFUSED
}

/* ---- strangers ---- */

static int
connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    const struct timespec pause = {.tv_nsec = 10000000};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    for (int i = 0; i < 500; i++) {
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        (void)nanosleep(&pause, NULL);
    }
    fail_msg("rank 0 does not listen");
    return -1;
}

/* Of one thread: many of them on its stack are more than it may have. */
static unsigned char payload[4096];

/* Reads a frame into payload; returns its kind, or -1 at the end. */
static int
read_frame(int fd, uint32_t *ret_n)
{
    unsigned char head[STI_MEET_HEAD];
    enum sti_meet_kind kind;

    if (recv(fd, head, sizeof(head), MSG_WAITALL) != (ssize_t)sizeof(head))
        return -1;
    assert_int_equal(sti_meet_get_head(head, &kind, ret_n), 0);
    assert_true(*ret_n <= sizeof(payload));
    assert_int_equal(recv(fd, payload, *ret_n, MSG_WAITALL), *ret_n);
    return (int)kind;
}

static void
is_refused(int fd, int code)
{
    uint32_t n_bytes = 0;
    int kind = read_frame(fd, &n_bytes);

    assert_int_equal(kind, STI_MEET_REFUSED);
    assert_int_equal((int32_t)(uint32_t)sti_wire_get(payload, 4), code);
    (void)close(fd);
}

/* Says something after the challenge. */
static int
say(uint16_t port, const void *bytes, size_t n_bytes)
{
    uint32_t n = 0;
    int fd = connect_to(port);

    assert_int_equal(read_frame(fd, &n), STI_MEET_CHALLENGE);
    assert_int_equal(send(fd, bytes, n_bytes, MSG_NOSIGNAL), n_bytes);
    return fd;
}

static void *
open_one(void *context)
{
    struct member *member = context;

    member->rc = sti_comm_open(&member->comm, &member->opts, &member->err);
    return NULL;
}

/* A rank's card and hello, with something wrong. */
static void
hello_as(uint16_t port, const char *secret_text, uint32_t version, uint32_t rank, int code)
{
    struct sti_card card = {.version = version, .rank = rank, .world = 2, .node = "x"};
    unsigned char frame[STI_MEET_HEAD + STI_MEET_HELLO_MAX] = {0};
    struct hmac_sha256_ctx secret;
    uint32_t n = 0;
    int fd = connect_to(port);

    hmac_sha256_set_key(&secret, strlen(secret_text), (const uint8_t *)secret_text);
    assert_int_equal(read_frame(fd, &n), STI_MEET_CHALLENGE);
    unsigned char *at = frame + STI_MEET_HEAD + STI_MEET_NONCE;
    int n_card = sti_card_encode(&card, &secret, at + STI_MEET_PROOF);
    assert_true(n_card > 0);
    sti_meet_prove(&secret, payload, STI_MEET_HELLO, at + STI_MEET_PROOF, (size_t)n_card, at);
    uint32_t n_bytes = STI_MEET_NONCE + STI_MEET_PROOF + (uint32_t)n_card;
    sti_meet_put_head(frame, STI_MEET_HELLO, n_bytes);
    assert_int_equal(send(fd, frame, STI_MEET_HEAD + n_bytes, MSG_NOSIGNAL),
                     STI_MEET_HEAD + n_bytes);
    is_refused(fd, code);
}

static void
test_strangers(void **state)
{
    unsigned char bytes[STI_MEET_HEAD + 64] = {0};
    pthread_t threads[2];

    (void)state;
    by_tcp(2);
    uint16_t port = team.members[0].opts.port;
    for (uint32_t rank = 0; rank < 2; rank++)
        team.members[rank].opts.secret = "a secret";
    assert_int_equal(pthread_create(&threads[0], NULL, open_one, &team.members[0]), 0);
    /* Who says nothing, and who leaves at once, are in nobody's way. */
    int silent = connect_to(port);
    (void)close(connect_to(port));
    is_refused(say(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27), -EBADMSG);
    sti_meet_put_head(bytes, STI_MEET_HELLO, UINT32_MAX);
    is_refused(say(port, bytes, STI_MEET_HEAD), -EBADMSG);
    sti_meet_put_head(bytes, STI_MEET_WELCOME, 0);
    is_refused(say(port, bytes, STI_MEET_HEAD), -EBADMSG);
    sti_meet_put_head(bytes, STI_MEET_HELLO, 10);
    is_refused(say(port, bytes, STI_MEET_HEAD + 10), -EBADMSG);
    sti_meet_put_head(bytes, STI_MEET_HELLO, 10);
    is_refused(say(port, bytes, STI_MEET_HEAD + 20), -EBADMSG);
    sti_meet_put_head(bytes, STI_MEET_HELLO, 64);
    is_refused(say(port, bytes, sizeof(bytes)), -EACCES);
    sti_meet_put_head(bytes, STI_MEET_HELLO, 0);
    sti_wire_put(bytes + 4, 77, 4);
    is_refused(say(port, bytes, STI_MEET_HEAD), STK_E_VERSION);
    hello_as(port, "another secret", STI_CARD_VERSION, 1, -EACCES);
    for (uint32_t i = 0; i < 100; i++) /* more than have a place */
        is_refused(say(port, bytes, STI_MEET_HEAD), STK_E_VERSION);
    assert_int_equal(pthread_create(&threads[1], NULL, open_one, &team.members[1]), 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
        if (team.members[rank].rc < 0)
            print_error("%s\n", team.members[rank].err.message);
        assert_int_equal(team.members[rank].rc, 0);
    }
    (void)close(silent);
    assert_int_equal(get_whole(&team, 0, 1, 1000), 0);
    team_close(&team);
}

/* One of ours with another version ends the start, with both named. */
static void
test_version(void **state)
{
    pthread_t thread;
    char ours[32];

    (void)state;
    (void)snprintf(ours, sizeof(ours), "version %u", STI_CARD_VERSION);
    by_tcp(2);
    team.members[0].opts.secret = "a secret";
    assert_int_equal(pthread_create(&thread, NULL, open_one, &team.members[0]), 0);
    hello_as(team.members[0].opts.port, "a secret", 9, 1, STK_E_VERSION);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(team.members[0].rc, STK_E_VERSION);
    assert_non_null(strstr(team.members[0].err.message, "version 9"));
    assert_non_null(strstr(team.members[0].err.message, ours));
    team_close(&team);
}

/* ---- cycles ---- */

static void
test_cycles(void **state)
{
    uint32_t fds = 0;
    size_t in_use = 0;

    (void)state;
    for (uint32_t cycle = 0; cycle < 220; cycle++) {
        if (cycle % 10 == 0)
            by_tcp(3);
        else
            team_init(&team, method, 3);
        team_open(&team);
        assert_int_equal(get_whole(&team, cycle % 3, (cycle + 1) % 3, 100000), 0);
        team_close(&team);
        if (cycle == 20) { /* what is loaded once is loaded */
            fds = open_fds();
            in_use = mallinfo2().uordblks;
        }
    }
    assert_int_equal(open_fds(), fds);
    size_t now = mallinfo2().uordblks;
    print_message("%s: %zu bytes in use after 20 cycles, %zu after 220\n", method, in_use, now);
    assert_true(now < in_use + (256 << 10));
}

/* ---- what a library may not do ---- */

static void
own_handler(int number)
{
    (void)number;
}

static void
test_signals(void **state)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGHUP, SIGPIPE};
    enum { N = sizeof(numbers) / sizeof(numbers[0]) };
    struct sigaction before[N], now, own = {.sa_handler = own_handler};

    (void)state;
    for (size_t i = 0; i < N; i++)
        assert_int_equal(sigaction(numbers[i], NULL, &before[i]), 0);
    team_init(&team, method, 2);
    team_open(&team);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(sigaction(numbers[i], NULL, &now), 0);
        assert_true(now.sa_handler == before[i].sa_handler);
        /* And ours can be set, which it could not be with UCX linked in. */
        assert_int_equal(sigaction(numbers[i], &own, NULL), 0);
        assert_int_equal(sigaction(numbers[i], &before[i], &now), 0);
        assert_true(now.sa_handler == own_handler);
    }
    team_close(&team);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals),  cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_disagree), cmocka_unit_test(test_other_world),
        cmocka_unit_test(test_secret),   cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_options),  cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_version),  cmocka_unit_test(test_cycles),
    };
    int n_failed = 0;

    for (const char *const *methods = team_methods(); *methods; methods++) {
        method = *methods;
        printf("method %s\n", method);
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    }
    return n_failed;
}
