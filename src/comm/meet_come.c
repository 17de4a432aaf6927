/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank comes to rank 0's port, which may not be there yet: it tries until its time is
 * over. Once it is there it waits for what rank 0 has to say, which is who is missing if
 * anybody is: as long as rank 0 waits, whose time began before that, and a little more. Would
 * it leave when its own time is over, it would be missing itself. Blocking, on the thread
 * that opens.
 */
#include "comm/meet.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nettle/memops.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "comm/start.h"
#include "comm/wire.h"

#define TRY_AGAIN_MS 50
#define WORD_NS STI_NS_PER_S /* for rank 0's last word to come */
#define NS_PER_MS UINT64_C(1000000)

static int
ms_left(uint64_t deadline_ns)
{
    uint64_t now_ns = sti_clock_ns();

    if (now_ns >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now_ns) / NS_PER_MS + 1;
    return ms < 1000000 ? (int)ms : 1000000;
}

/* Waits for a socket. Returns 0, -ETIMEDOUT or -errno. */
static int
wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int n;

    do
        n = poll(&poll_fd, 1, ms_left(deadline_ns));
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

static int
connect_to(const struct addrinfo *to, uint64_t deadline_ns)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int code = 0;
    socklen_t size = sizeof(code);

    if (fd < 0)
        return -errno;
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0)
        code = errno;
    if (code == EINPROGRESS) {
        code = -wait_for(fd, POLLOUT, deadline_ns);
        if (code == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
            code = errno;
    }
    if (code != 0) {
        (void)close(fd); /* never connected */
        return -code;
    }
    return fd;
}

/* Sends or receives all of n_bytes. Returns 0 or a negative code. */
static int
move(int fd, void *bytes, size_t n_bytes, bool is_out, uint64_t deadline_ns)
{
    for (char *at = bytes; n_bytes > 0;) {
        ssize_t n = is_out ? send(fd, at, n_bytes, MSG_NOSIGNAL) : recv(fd, at, n_bytes, 0);

        if (n > 0) {
            at += n;
            n_bytes -= (size_t)n;
            continue;
        }
        if (n == 0)
            return -ECONNRESET;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int rc = wait_for(fd, is_out ? POLLOUT : POLLIN, deadline_ns);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int
bad_frame(const struct sti_comm_opts *opts, int code, uint32_t version, stk_error *err)
{
    if (code == STK_E_VERSION)
        return sti_error_set(err, code,
                             "rank 0 at %s, port %u, speaks version %u of the start, this rank "
                             "version %u: all ranks must run the same Stoker",
                             opts->host, opts->port, version, STI_MEET_VERSION);
    return sti_error_set(err, -EBADMSG,
                         "what answers at %s, port %u, is not rank 0 of a Stoker job: another "
                         "program has this port; name a free one",
                         opts->host, opts->port);
}

/* Reads a frame's head and, up to room, its payload. */
static int
read_frame(int fd, const struct sti_start *start, enum sti_meet_kind *ret_kind,
           unsigned char **ret_bytes, uint32_t *ret_n_bytes, stk_error *err)
{
    uint64_t most = STI_MEET_PROOF + (uint64_t)start->opts->world * STI_COMM_CARD_MAX;
    unsigned char head[STI_MEET_HEAD];
    uint32_t n_bytes = 0;
    int rc = move(fd, head, sizeof(head), false, start->deadline_ns);

    if (rc < 0)
        return rc;
    rc = sti_meet_get_head(head, ret_kind, &n_bytes);
    if (rc == 0 && n_bytes > most)
        rc = -EBADMSG;
    if (rc < 0)
        return bad_frame(start->opts, rc, n_bytes, err);
    unsigned char *bytes = sti_mem_new((size_t)n_bytes + 1, 1);
    if (!bytes)
        return -ENOMEM;
    rc = move(fd, bytes, n_bytes, false, start->deadline_ns);
    if (rc < 0) {
        sti_mem_free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_n_bytes = n_bytes;
    return 0;
}

static int
say_hello(int fd, const struct sti_start *start, const unsigned char *challenge,
          const unsigned char nonce[STI_MEET_NONCE])
{
    uint32_t n_bytes = STI_MEET_NONCE + STI_MEET_PROOF + start->n_mine;
    unsigned char *frame = sti_mem_new(STI_MEET_HEAD + n_bytes, 1);
    unsigned char *at = frame;

    if (!frame)
        return -ENOMEM;
    sti_meet_put_head(at, STI_MEET_HELLO, n_bytes);
    at += STI_MEET_HEAD;
    memcpy(at, nonce, STI_MEET_NONCE);
    at += STI_MEET_NONCE;
    sti_meet_prove(start->secret, challenge, STI_MEET_HELLO, start->mine, start->n_mine, at);
    memcpy(at + STI_MEET_PROOF, start->mine, start->n_mine);
    int rc = move(fd, frame, STI_MEET_HEAD + n_bytes, true, start->deadline_ns);
    sti_mem_free(frame);
    return rc;
}

static int
refused(const unsigned char *bytes, uint32_t n_bytes, stk_error *err)
{
    int code = n_bytes >= 4 ? (int)(uint32_t)sti_wire_get(bytes, 4) : -EACCES;
    int n_chars = n_bytes >= 4 ? (int)(n_bytes - 4) : 0;

    if (n_chars > (int)STI_MEET_TEXT_MAX)
        n_chars = STI_MEET_TEXT_MAX;
    if (code >= 0)
        code = -EACCES;
    return sti_error_set(err, code, "rank 0: %.*s", n_chars, (const char *)bytes + 4);
}

static int
read_welcome(const struct sti_start *start, const unsigned char nonce[STI_MEET_NONCE],
             const unsigned char *bytes, uint32_t n_bytes, stk_error *err)
{
    unsigned char proof[STI_MEET_PROOF];
    int rc = n_bytes >= sizeof(proof) ? 0 : -EBADMSG;

    if (rc == 0) {
        sti_meet_prove(start->secret, nonce, STI_MEET_WELCOME, bytes + sizeof(proof),
                       n_bytes - sizeof(proof), proof);
        if (!memeql_sec(proof, bytes, sizeof(proof)))
            return sti_error_set(err, -EACCES,
                                 "what answers at %s, port %u, does not have the job's secret",
                                 start->opts->host, start->opts->port);
        rc = sti_meet_read_cards(bytes + sizeof(proof), n_bytes - sizeof(proof), start->opts->world,
                                 start->cards);
    }
    return rc < 0 ? bad_frame(start->opts, rc, 0, err) : 0;
}

/* One conversation. */
static int
talk(int fd, const struct sti_start *start, stk_error *err)
{
    unsigned char nonce[STI_MEET_NONCE];
    enum sti_meet_kind kind = STI_MEET_KINDS;
    unsigned char *bytes = NULL;
    uint32_t n_bytes = 0;
    int rc = sti_start_random(nonce, sizeof(nonce));

    if (rc == 0)
        rc = read_frame(fd, start, &kind, &bytes, &n_bytes, err);
    if (rc < 0)
        return rc;
    if (kind == STI_MEET_CHALLENGE && n_bytes == STI_MEET_NONCE) {
        rc = say_hello(fd, start, bytes, nonce);
        sti_mem_free(bytes);
        bytes = NULL;
        /* A refusal may have come before all was said. */
        int read_rc = read_frame(fd, start, &kind, &bytes, &n_bytes, err);
        if (read_rc < 0)
            return rc < 0 ? rc : read_rc;
    }
    if (kind == STI_MEET_REFUSED)
        rc = refused(bytes, n_bytes, err);
    else if (kind == STI_MEET_WELCOME)
        rc = read_welcome(start, nonce, bytes, n_bytes, err);
    else
        rc = bad_frame(start->opts, -EBADMSG, 0, err);
    sti_mem_free(bytes);
    return rc;
}

static int
resolve(const struct sti_comm_opts *opts, struct addrinfo **ret_found, stk_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];

    (void)snprintf(port, sizeof(port), "%u", opts->port);
    int rc = getaddrinfo(opts->host, port, &hints, ret_found);
    if (rc != 0)
        return sti_error_set(err, -EHOSTUNREACH, "rank 0's address %s is not known: %s", opts->host,
                             gai_strerror(rc));
    return 0;
}

int
sti_meet_come(struct sti_start *start, stk_error *err)
{
    struct addrinfo *found;
    int fd = -ETIMEDOUT;
    int rc = resolve(start->opts, &found, err);

    if (rc < 0)
        return rc;
    while (fd < 0 && ms_left(start->deadline_ns) > 0) {
        for (const struct addrinfo *to = found; to && fd < 0; to = to->ai_next)
            fd = connect_to(to, start->deadline_ns);
        if (fd < 0)
            (void)poll(NULL, 0, TRY_AGAIN_MS); /* a pause; it may be short */
    }
    freeaddrinfo(found);
    if (fd < 0)
        return sti_error_set(err, -ETIMEDOUT,
                             "rank 0 cannot be reached at %s, port %u (%s): is it running, and is "
                             "the port open?",
                             start->opts->host, start->opts->port, sti_error_text(fd));

    if (err)
        err->message[0] = '\0';
    start->deadline_ns = sti_clock_ns() + start->timeout_ns + WORD_NS;
    rc = talk(fd, start, err);
    (void)close(fd); /* all was received */
    if (rc < 0 && (!err || err->message[0] == '\0'))
        rc = sti_error_set(err, rc, "rank 0 at %s, port %u, left the start early (%s)",
                           start->opts->host, start->opts->port, sti_error_text(rc));
    return rc;
}
