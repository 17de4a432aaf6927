/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank as a process, for the tests that kill, stop and separate ranks: takes part in
 * the start by TCP, serves bytes, and does what it is told by lines on its input, one
 * line of output for each.
 *
 *   comm_rank RANK WORLD HOST PORT SECRET [TRANSPORTS]
 *
 *   get PEER BYTES COUNT MS   requests COUNT times, 8 at a time; MS: for each
 *   vote ID FOR ROOT MS       gather MS
 *   peer RANK                 what it was lost by
 *   wakes MS                  how often this rank wakes up in that time
 *   quit
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/wire.h"

#define MS UINT64_C(1000000)
#define VERB 7
#define DEPTH 8

static struct sti_comm *comm;
static char line[256];
static size_t n_line;
static bool is_ended;
static unsigned char *served; /* what every rank has */
#define SERVED_BYTES (32u << 20)

static unsigned char
byte_at(uint64_t at)
{
    return (unsigned char)(at * 131 + (at >> 9));
}

static void
sent(void *context, int code)
{
    (void)context;
    (void)code;
}

static void
serve(void *context, struct sti_comm_incoming *incoming)
{
    uint64_t n_bytes = incoming->n_small == 8 ? sti_wire_get(incoming->small, 8) : 0;
    const struct sti_comm_answer answer = {
        .body = served, .n_bytes = n_bytes <= SERVED_BYTES ? n_bytes : 0, .done = sent};

    (void)context;
    sti_comm_answer(comm, incoming, &answer);
}

/* One turn; sleeps until there is something, a line among it, or a time is over. */
static void
turn(uint64_t until_ns, bool hears)
{
    uint64_t wait_ns = sti_comm_progress(comm);
    uint64_t now_ns = sti_clock_ns();

    if (wait_ns == 0 || now_ns >= until_ns || sti_comm_arm(comm) < 0)
        return;
    if (until_ns - now_ns < wait_ns)
        wait_ns = until_ns - now_ns;
    struct pollfd fds[2] = {{.fd = sti_comm_fd(comm), .events = POLLIN},
                            {.fd = hears ? STDIN_FILENO : -1, .events = POLLIN}};
    int n = poll(fds, 2, wait_ns / MS < 1000000 ? (int)(wait_ns / MS) + 1 : -1);
    if (n > 0 && fds[1].revents) {
        ssize_t got = read(STDIN_FILENO, line + n_line, sizeof(line) - 1 - n_line);

        is_ended = got <= 0;
        n_line += got > 0 ? (size_t)got : 0;
    }
}

static void
count(struct sti_comm_request *request)
{
    ++*(uint32_t *)request->context;
}

static void
get(uint32_t peer, uint64_t n_bytes, uint32_t n, uint64_t ms)
{
    static struct sti_comm_request requests[DEPTH];
    static unsigned char *into[DEPTH];
    static uint32_t n_done[DEPTH];
    uint32_t n_asked = 0, n_good = 0, n_bad = 0, n_wrong = 0;
    int last = 0;
    unsigned char small[8];
    bool busy[DEPTH] = {false};
    uint64_t longest_ns = 0, began_ns[DEPTH] = {0};

    sti_wire_put(small, n_bytes, 8);
    while (n_good + n_bad < n) {
        bool is_waiting = false;

        for (uint32_t i = 0; i < DEPTH; i++) {
            if (busy[i] && n_done[i]) {
                uint64_t took_ns = sti_clock_ns() - began_ns[i];

                busy[i] = false;
                longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
                if (requests[i].result == 0) {
                    n_good++;
                    n_wrong += memcmp(into[i], served, n_bytes) != 0;
                } else {
                    n_bad++;
                    last = requests[i].result;
                }
            }
            if (busy[i] || n_asked >= n)
                continue;
            if (!into[i])
                into[i] = malloc(SERVED_BYTES);
            if (!into[i])
                exit(1);
            memset(into[i], 0, n_bytes < 64 ? n_bytes : 64);
            n_done[i] = 0;
            requests[i] = (struct sti_comm_request){.peer = peer,
                                                    .verb = VERB,
                                                    .small = small,
                                                    .n_small = 8,
                                                    .into = into[i],
                                                    .into_bytes = n_bytes,
                                                    .timeout_ns = ms * MS,
                                                    .done = count,
                                                    .context = &n_done[i]};
            int rc = sti_comm_request(comm, &requests[i]);
            began_ns[i] = sti_clock_ns();
            n_asked++;
            busy[i] = rc == 0;
            if (rc < 0) {
                n_bad++;
                last = rc;
            }
        }
        for (uint32_t i = 0; i < DEPTH; i++)
            is_waiting = is_waiting || busy[i];
        if (is_waiting)
            turn(UINT64_MAX, false);
    }
    printf("got %u bad %u wrong %u code %d ms %" PRIu64 "\n", n_good, n_bad, n_wrong, last,
           longest_ns / MS);
}

static bool round_is_done;

static void
end_round(struct sti_comm_round *round)
{
    (void)round;
    round_is_done = true;
}

static void
hold_round(struct sti_comm_round *round, bool is_vote)
{
    round_is_done = false;
    round->done = end_round;
    int rc = is_vote ? sti_comm_vote(comm, round) : sti_comm_allgather(comm, round);
    while (rc == 0 && !round_is_done)
        turn(UINT64_MAX, false);
    printf("%s %d rank %d\n", is_vote ? "vote" : "gather", rc < 0 ? rc : round->result,
           (int)round->rank);
}

static void
gather(uint64_t ms)
{
    uint32_t world = sti_comm_world(comm);
    unsigned char mine[8];
    unsigned char *all = malloc(8 * (size_t)world);
    struct sti_comm_round round = {.mine = mine, .all = all, .n_bytes = 8, .timeout_ns = ms * MS};

    if (!all)
        exit(1);
    sti_wire_put(mine, 1000 + sti_comm_rank(comm), 8);
    hold_round(&round, false);
    for (uint32_t rank = 0; round.result == 0 && rank < world; rank++) {
        if (sti_wire_get(all + (size_t)8 * rank, 8) != 1000 + rank)
            exit(1);
    }
    free(all);
}

static void
obey(const char *text)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    char word[16] = "";
    struct sti_comm_stats before, after;

    (void)sscanf(text, "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, word, &a, &b, &c, &d);
    if (strcmp(word, "get") == 0 && b <= SERVED_BYTES) {
        get((uint32_t)a, b, (uint32_t)c, d);
    } else if (strcmp(word, "vote") == 0) {
        struct sti_comm_round round = {
            .id = a, .is_for = b != 0, .root = (uint32_t)c, .timeout_ns = d * MS};

        hold_round(&round, true);
    } else if (strcmp(word, "gather") == 0) {
        gather(a);
    } else if (strcmp(word, "peer") == 0) {
        printf("peer %d\n", sti_comm_peer(comm, (uint32_t)a));
    } else if (strcmp(word, "wakes") == 0) {
        uint64_t until_ns = sti_clock_ns() + a * MS;

        sti_comm_get_stats(comm, &before);
        while (sti_clock_ns() < until_ns)
            turn(until_ns, false);
        sti_comm_get_stats(comm, &after);
        printf("wakes %" PRIu64 "\n", after.wakes - before.wakes);
    } else if (strcmp(word, "quit") == 0) {
        is_ended = true;
    } else {
        printf("what?\n");
    }
}

int
main(int argc, char **argv)
{
    stk_error err;

    if (argc < 6)
        return 2;
    const struct sti_comm_opts opts = {
        .method = "ucx",
        .rank = (uint32_t)strtoul(argv[1], NULL, 10),
        .world = (uint32_t)strtoul(argv[2], NULL, 10),
        .host = argv[3],
        .port = (uint16_t)strtoul(argv[4], NULL, 10),
        .secret = argv[5][0] ? argv[5] : NULL,
        .transports = argc > 6 ? argv[6] : NULL,
        .timeout_ns = 3000 * MS,
        .retry_ns = 100 * MS,
        .start_timeout_ns = 20000 * MS,
        .events = {.request = serve},
    };
    served = malloc(SERVED_BYTES);
    if (!served)
        return 1;
    for (uint64_t at = 0; at < SERVED_BYTES; at++)
        served[at] = byte_at(at);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (sti_comm_open(&comm, &opts, &err) < 0) {
        printf("failed %d %s\n", err.code, err.message);
        return 1;
    }
    printf("open node %u of %u\n", sti_comm_node_of(comm, opts.rank), sti_comm_nodes(comm));
    while (!is_ended) {
        char *end = memchr(line, '\n', n_line);

        if (!end) {
            turn(UINT64_MAX, true);
            continue;
        }
        *end = '\0';
        obey(line);
        n_line -= (size_t)(end + 1 - line);
        memmove(line, end + 1, n_line);
    }
    sti_comm_close(comm);
    free(served);
    printf("closed\n");
    return 0;
}
