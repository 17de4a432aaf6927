/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 waits at its port for the others. Everybody can connect, so nobody is waited for
 * alone: a connection has a state, a buffer of fixed size and a time. Who does not prove to
 * know the secret (without one: who comes from elsewhere) is refused and counted, and the
 * start goes on. Who proves it and disagrees ends the start for all, with the values named.
 *
 * Blocking, on the thread that opens.
 */
#include "comm/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "comm/start.h"
#include "comm/wire.h"

#define STRANGERS_MAX 64u               /* connections beyond those of the ranks */
#define STRANGER_NS (10 * STI_NS_PER_S) /* in which a connection has to prove itself */
#define GOODBYE_NS (2 * STI_NS_PER_S)   /* for a refusal to leave */
#define FRAME_MAX (STI_MEET_HEAD + STI_MEET_HELLO_MAX)
#define NS_PER_MS UINT64_C(1000000)

struct visitor {
    int fd; /* -1: none */
    uint32_t rank;
    bool is_member;
    bool is_leaving; /* closed when all has been sent */
    uint64_t due_ns;
    unsigned char nonce[STI_MEET_NONCE];
    unsigned char theirs[STI_MEET_NONCE]; /* their nonce */
    unsigned char in[FRAME_MAX];
    uint32_t n_in;
    unsigned char out[STI_MEET_HEAD + STI_MEET_PROOF + STI_MEET_TEXT_MAX];
    uint32_t n_out;
    const unsigned char *more; /* after out: what all get */
    size_t n_more;
    size_t n_sent;
};

struct waiting {
    struct sti_start *start;
    int fd;
    uint32_t n_visitors; /* places */
    uint32_t n_here;     /* ranks, this one included */
    uint32_t n_refused;
    bool is_over; /* the start has failed, which is told to all who come */
    bool is_deaf; /* nobody is listened to any more */
    struct visitor *visitors;
    struct pollfd *polls;
    unsigned char *cards; /* of all ranks, packed */
    size_t n_cards;
    bool *is_here;
    char last_refused[96]; /* who was refused last, and why */
    stk_error reason;      /* why the start ends for all */
};

/* ---- one visitor ---- */

static void
leave(struct visitor *visitor)
{
    if (visitor->fd >= 0)
        (void)close(visitor->fd); /* what was to be sent has been, or cannot be */
    visitor->fd = -1;
    visitor->is_member = false;
}

/* Sends what there is to send; returns whether the visitor is still there. */
static bool
push(struct visitor *visitor)
{
    while (visitor->n_sent < visitor->n_out + visitor->n_more) {
        bool is_first = visitor->n_sent < visitor->n_out;
        const unsigned char *from = is_first ? visitor->out + visitor->n_sent
                                             : visitor->more + (visitor->n_sent - visitor->n_out);
        size_t n_bytes = is_first ? visitor->n_out - visitor->n_sent
                                  : visitor->n_more - (visitor->n_sent - visitor->n_out);
        ssize_t n = send(visitor->fd, from, n_bytes, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n < 0) {
            leave(visitor);
            return false;
        }
        visitor->n_sent += (size_t)n;
    }
    if (visitor->is_leaving) {
        (void)shutdown(visitor->fd, SHUT_WR); /* it reads to the end, then we close */
        leave(visitor);
        return false;
    }
    return true;
}

static bool
is_sending(const struct visitor *visitor)
{
    return visitor->n_sent < visitor->n_out + visitor->n_more;
}

static void
say(struct visitor *visitor, enum sti_meet_kind kind, const void *bytes, uint32_t n_bytes)
{
    sti_meet_put_head(visitor->out, kind, n_bytes);
    memcpy(visitor->out + STI_MEET_HEAD, bytes, n_bytes);
    visitor->n_out = STI_MEET_HEAD + n_bytes;
    visitor->n_more = 0;
    visitor->n_sent = 0;
}

static void
refuse(struct visitor *visitor, int code, const char *text)
{
    unsigned char bytes[4 + STI_MEET_TEXT_MAX];
    size_t n_chars = strnlen(text, STI_MEET_TEXT_MAX);

    sti_wire_put(bytes, (uint32_t)code, 4);
    memcpy(bytes + 4, text, n_chars);
    say(visitor, STI_MEET_REFUSED, bytes, (uint32_t)(4 + n_chars));
    visitor->is_leaving = true;
    visitor->due_ns = sti_clock_ns() + GOODBYE_NS;
    (void)push(visitor); /* gone or not, there is nothing else to do for it */
}

/* A stranger, or a rank that is not wanted: it goes, the start goes on. */
static void
refuse_one(struct waiting *waiting, struct visitor *visitor, int code, const char *why)
{
    char host[64];

    sti_meet_name(visitor->fd, host, sizeof(host));
    waiting->n_refused++;
    (void)snprintf(waiting->last_refused, sizeof(waiting->last_refused), "%.40s: %.50s", host, why);
    refuse(visitor, code, why);
}

/* ---- who comes ---- */

static void
accept_one(struct waiting *waiting)
{
    struct visitor *visitor = waiting->visitors;
    int fd = accept4(waiting->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return; /* it has gone again */
    while (visitor < waiting->visitors + waiting->n_visitors && visitor->fd >= 0)
        visitor++;
    if (visitor == waiting->visitors + waiting->n_visitors) {
        waiting->n_refused++;
        (void)close(fd); /* too many at a time; a rank tries again */
        return;
    }
    *visitor = (struct visitor){.fd = fd, .due_ns = sti_clock_ns() + STRANGER_NS};
    if (!sti_meet_may_come(waiting->start->opts, fd)) {
        refuse_one(waiting, visitor, -EACCES,
                   "this machine is not among the job's; give all ranks a secret, or rank 0 the "
                   "addresses of the machines");
        return;
    }
    if (sti_start_random(visitor->nonce, sizeof(visitor->nonce)) < 0) {
        leave(visitor);
        return;
    }
    say(visitor, STI_MEET_CHALLENGE, visitor->nonce, STI_MEET_NONCE);
    (void)push(visitor); /* the rest is sent when it can be */
}

/* ---- hello ---- */

static int
disagree(struct waiting *waiting, const struct sti_card *card)
{
    /* Large, and only one of them at a time on the stack. */
    struct sti_card *first = sti_mem_new(1, sizeof(*first));
    int rc;

    if (!first)
        return sti_error_set(&waiting->reason, -ENOMEM, "no memory for a rank's card");
    rc = sti_card_decode(first, waiting->start->secret, waiting->start->mine,
                         waiting->start->n_mine);
    if (rc == 0)
        rc = sti_card_check(first, card, card->rank, &waiting->reason);
    sti_mem_free(first);
    return rc;
}

static void
join(struct waiting *waiting, struct visitor *visitor, const struct sti_card *card)
{
    const uint32_t before = STI_MEET_HEAD + STI_MEET_NONCE + STI_MEET_PROOF;

    if (!waiting->is_over && disagree(waiting, card) < 0)
        waiting->is_over = true;
    if (waiting->is_here[card->rank]) {
        refuse_one(waiting, visitor, -EEXIST, "a rank of this number is there already");
        return;
    }
    waiting->is_here[card->rank] = true;
    waiting->n_here++;
    if (waiting->is_over) {
        refuse(visitor, waiting->reason.code, waiting->reason.message);
        return;
    }
    memcpy(waiting->start->cards + (uint64_t)card->rank * STI_COMM_CARD_MAX, visitor->in + before,
           visitor->n_in - before);
    memcpy(visitor->theirs, visitor->in + STI_MEET_HEAD, STI_MEET_NONCE);
    visitor->rank = card->rank;
    visitor->is_member = true;
    visitor->due_ns = UINT64_MAX;
}

static void
read_hello(struct waiting *waiting, struct visitor *visitor)
{
    struct sti_card *card = sti_mem_new(1, sizeof(*card));
    int rc = -ENOMEM;

    if (card)
        rc = sti_meet_read_hello(waiting->start->secret, visitor->nonce,
                                 visitor->in + STI_MEET_HEAD, visitor->n_in - STI_MEET_HEAD, card);
    if (rc == 0) {
        join(waiting, visitor, card);
    } else if (rc == STK_E_VERSION) {
        /* It has the secret: it is one of ours, and will not become another. */
        if (!waiting->is_over)
            (void)sti_error_set(&waiting->reason, STK_E_VERSION,
                                "a rank speaks version %u of the ranks' protocol, rank 0 version "
                                "%u: all ranks must run the same Stoker",
                                card->version, STI_CARD_VERSION);
        waiting->is_over = true;
        refuse(visitor, waiting->reason.code, waiting->reason.message);
    } else {
        refuse_one(waiting, visitor, rc,
                   rc == -EACCES ? "the secret is not that of rank 0; give all ranks the same"
                                 : "what it said is not what a rank says");
    }
    sti_mem_free(card);
}

/* What a whole frame of a visitor means, as far as it has come. */
static void
look(struct waiting *waiting, struct visitor *visitor)
{
    enum sti_meet_kind kind;
    uint32_t n_bytes = 0;

    if (visitor->n_in < STI_MEET_HEAD)
        return;
    int rc = sti_meet_get_head(visitor->in, &kind, &n_bytes);
    if (rc == STK_E_VERSION) {
        char text[STI_MEET_TEXT_MAX];

        (void)snprintf(text, sizeof(text),
                       "it speaks version %u of the start, rank 0 version %u: all ranks must run "
                       "the same Stoker",
                       n_bytes, STI_MEET_VERSION);
        refuse_one(waiting, visitor, rc, text);
    } else if (rc < 0 || kind != STI_MEET_HELLO || n_bytes > STI_MEET_HELLO_MAX) {
        refuse_one(waiting, visitor, -EBADMSG, "what it said is not what a rank says");
    } else if (visitor->n_in == STI_MEET_HEAD + n_bytes) {
        read_hello(waiting, visitor);
    } else if (visitor->n_in > STI_MEET_HEAD + n_bytes) {
        refuse_one(waiting, visitor, -EBADMSG, "it said more than a rank says");
    }
}

static void
hear(struct waiting *waiting, struct visitor *visitor)
{
    ssize_t n;

    if (visitor->is_member) {
        unsigned char byte;

        n = recv(visitor->fd, &byte, 1, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        /* It has gone, or talks on: its place is free for its next try. */
        waiting->is_here[visitor->rank] = false;
        waiting->n_here--;
        leave(visitor);
        return;
    }
    n = recv(visitor->fd, visitor->in + visitor->n_in, sizeof(visitor->in) - visitor->n_in, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        leave(visitor);
        return;
    }
    visitor->n_in += (uint32_t)n;
    look(waiting, visitor);
}

/* ---- all ---- */

static int
poll_ms(const struct waiting *waiting, uint64_t until_ns)
{
    uint64_t now_ns = sti_clock_ns();

    for (uint32_t i = 0; i < waiting->n_visitors; i++) {
        if (waiting->visitors[i].fd >= 0 && waiting->visitors[i].due_ns < until_ns)
            until_ns = waiting->visitors[i].due_ns;
    }
    if (until_ns <= now_ns)
        return 0;
    uint64_t ms = (until_ns - now_ns) / NS_PER_MS + 1;
    return ms < 1000000 ? (int)ms : 1000000;
}

/* Serves all once: waits until one of them can go on, or a time is over. */
static int
serve(struct waiting *waiting, uint64_t until_ns)
{
    uint32_t n = waiting->n_visitors;

    for (uint32_t i = 0; i < n; i++) {
        const struct visitor *visitor = &waiting->visitors[i];
        bool is_deaf = visitor->is_leaving || waiting->is_deaf;

        waiting->polls[i] = (struct pollfd){
            .fd = visitor->fd,
            .events = (short)((is_sending(visitor) ? POLLOUT : 0) | (is_deaf ? 0 : POLLIN)),
        };
    }
    waiting->polls[n] =
        (struct pollfd){.fd = waiting->is_deaf ? -1 : waiting->fd, .events = POLLIN};
    if (poll(waiting->polls, n + 1, poll_ms(waiting, until_ns)) < 0 && errno != EINTR)
        return -errno;
    uint64_t now_ns = sti_clock_ns();
    for (uint32_t i = 0; i < n; i++) {
        struct visitor *visitor = &waiting->visitors[i];
        short what = visitor->fd >= 0 ? waiting->polls[i].revents : 0;

        if (what & POLLOUT && !push(visitor))
            continue;
        if (what & (POLLIN | POLLHUP | POLLERR) && !visitor->is_leaving && !waiting->is_deaf)
            hear(waiting, visitor);
        else if (what & (POLLHUP | POLLERR))
            leave(visitor);
        if (visitor->fd >= 0 && visitor->due_ns <= now_ns)
            leave(visitor);
    }
    if (waiting->polls[n].revents & POLLIN)
        accept_one(waiting);
    return 0;
}

/* Until all that was said has been sent, or a time is over. */
static void
finish_sending(struct waiting *waiting, uint64_t until_ns)
{
    bool is_busy = true;

    waiting->is_deaf = true;
    while (is_busy && sti_clock_ns() < until_ns) {
        is_busy = false;
        for (uint32_t i = 0; i < waiting->n_visitors; i++)
            is_busy =
                is_busy || (waiting->visitors[i].fd >= 0 && is_sending(&waiting->visitors[i]));
        if (is_busy && serve(waiting, until_ns) < 0)
            return;
    }
}

static int
fail(struct waiting *waiting, stk_error *err)
{
    uint64_t until_ns = sti_clock_ns() + GOODBYE_NS;

    waiting->is_over = true;
    for (uint32_t i = 0; i < waiting->n_visitors; i++) {
        if (waiting->visitors[i].fd >= 0 && waiting->visitors[i].is_member) {
            waiting->visitors[i].is_member = false;
            refuse(&waiting->visitors[i], waiting->reason.code, waiting->reason.message);
        }
    }
    /* Who is about to come is told as well, and need not wait for its own time to end. */
    while (waiting->n_here < waiting->start->opts->world && sti_clock_ns() < until_ns) {
        if (serve(waiting, until_ns) < 0)
            break;
    }
    finish_sending(waiting, until_ns);
    if (err)
        *err = waiting->reason;
    return waiting->reason.code;
}

static void
somebody_is_missing(struct waiting *waiting)
{
    uint32_t world = waiting->start->opts->world;
    uint32_t rank = 0;
    char strangers[160] = "";

    while (rank < world && waiting->is_here[rank])
        rank++;
    if (waiting->n_refused > 0)
        (void)snprintf(strangers, sizeof(strangers), "; refused %u, the last %s",
                       waiting->n_refused, waiting->last_refused);
    (void)sti_error_set(
        &waiting->reason, -ETIMEDOUT,
        "rank %u, and %u of %u ranks in all, did not come to %s, port %u, in time%s", rank,
        world - waiting->n_here, world, waiting->start->opts->host, waiting->start->opts->port,
        strangers);
    waiting->reason.rank = (int)rank;
}

static void
welcome(struct waiting *waiting)
{
    const struct sti_start *start = waiting->start;

    for (uint32_t rank = 0; rank < start->opts->world; rank++) {
        const unsigned char *card = start->cards + (uint64_t)rank * STI_COMM_CARD_MAX;
        size_t n_bytes = (size_t)sti_wire_get(card + 8, 4);

        memcpy(waiting->cards + waiting->n_cards, card, n_bytes);
        waiting->n_cards += n_bytes;
    }
    for (uint32_t i = 0; i < waiting->n_visitors; i++) {
        struct visitor *visitor = &waiting->visitors[i];
        unsigned char proof[STI_MEET_PROOF];

        if (visitor->fd < 0 || !visitor->is_member)
            continue;
        sti_meet_prove(start->secret, visitor->theirs, STI_MEET_WELCOME, waiting->cards,
                       waiting->n_cards, proof);
        say(visitor, STI_MEET_WELCOME, proof, sizeof(proof));
        sti_meet_put_head(visitor->out, STI_MEET_WELCOME,
                          (uint32_t)(sizeof(proof) + waiting->n_cards));
        visitor->more = waiting->cards;
        visitor->n_more = waiting->n_cards;
        (void)push(visitor); /* the rest is sent when it can be */
    }
    finish_sending(waiting, start->deadline_ns);
}

static int
prepare(struct waiting *waiting)
{
    uint32_t world = waiting->start->opts->world;

    waiting->n_visitors = world - 1 + STRANGERS_MAX;
    waiting->visitors = sti_mem_new(waiting->n_visitors, sizeof(struct visitor));
    waiting->polls = sti_mem_new(waiting->n_visitors + 1, sizeof(struct pollfd));
    waiting->is_here = sti_mem_new(world, sizeof(bool));
    waiting->cards = sti_mem_new(world, STI_COMM_CARD_MAX);
    if (!waiting->visitors || !waiting->polls || !waiting->is_here || !waiting->cards)
        return -ENOMEM;
    for (uint32_t i = 0; i < waiting->n_visitors; i++)
        waiting->visitors[i].fd = -1;
    waiting->is_here[0] = true;
    waiting->n_here = 1;
    memcpy(waiting->start->cards, waiting->start->mine, waiting->start->n_mine);
    return 0;
}

int
sti_meet_wait(struct sti_start *start, stk_error *err)
{
    struct waiting waiting = {.start = start, .fd = -1};
    int rc = prepare(&waiting);

    if (rc < 0) {
        (void)sti_error_set(err, rc, "no memory to wait for %u ranks", start->opts->world);
        goto err_free;
    }
    rc = sti_meet_listen(start->opts, err);
    if (rc < 0)
        goto err_free;
    waiting.fd = rc;
    rc = 0;
    while (rc == 0 && !waiting.is_over && waiting.n_here < start->opts->world) {
        rc = serve(&waiting, start->deadline_ns);
        if (rc < 0)
            (void)sti_error_set(&waiting.reason, rc, "waiting for the ranks failed: %s",
                                sti_error_text(rc));
        else if (!waiting.is_over && waiting.n_here < start->opts->world &&
                 sti_clock_ns() >= start->deadline_ns) {
            somebody_is_missing(&waiting);
            rc = -ETIMEDOUT;
        }
    }
    if (rc < 0 || waiting.is_over)
        rc = fail(&waiting, err);
    else
        welcome(&waiting);
    for (uint32_t i = 0; i < waiting.n_visitors; i++)
        leave(&waiting.visitors[i]);
    (void)close(waiting.fd); /* nobody is waited for any more */
err_free:
    sti_mem_free(waiting.visitors);
    sti_mem_free(waiting.polls);
    sti_mem_free(waiting.is_here);
    sti_mem_free(waiting.cards);
    return rc;
}
