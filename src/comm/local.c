/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process. Each has an inbox in the hub; a message goes into it by
 * reference, the receiver copies the body, and the sender is told through its own inbox: a
 * link's memory and its callbacks are its owner's alone. A rank whose link is closed
 * answers by -ECONNRESET, as a process that has ended would.
 *
 * Threads: every rank's own. Lock: the hub's, a leaf, for the inboxes.
 */
#include "comm/method.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"

struct inbox {
    struct sti_link_send *messages; /* to this rank, the first one first */
    struct sti_link_send **messages_end;
    struct sti_link_send *sent; /* of this rank, come back */
    struct sti_link_send **sent_end;
    struct sti_link *link; /* NULL: not there */
    bool is_armed;         /* it sleeps, or is about to */
};

struct sti_comm_hub {
    struct sti_mutex lock;
    uint32_t world;
    struct inbox *inboxes STI_GUARDED_BY(&lock);
};

struct sti_link {
    struct sti_comm_hub *hub;
    uint32_t rank;
    int fd;
    struct sti_link_events events;
    uint32_t n_out; /* messages that have not come back */
};

int
sti_comm_hub_new(struct sti_comm_hub **ret_hub, uint32_t world)
{
    struct sti_comm_hub *hub;
    int rc;

    if (world == 0 || world > STI_COMM_RANKS_MAX)
        return -EINVAL;
    hub = sti_mem_new(1, sizeof(*hub));
    if (!hub)
        return -ENOMEM;
    rc = sti_mutex_init(&hub->lock, STI_RANK_LEAF);
    if (rc < 0) {
        sti_mem_free(hub);
        return rc;
    }
    sti_mutex_lock(&hub->lock);
    hub->world = world;
    hub->inboxes = sti_mem_new(world, sizeof(struct inbox));
    rc = hub->inboxes ? 0 : -ENOMEM;
    for (uint32_t rank = 0; rc == 0 && rank < world; rank++) {
        hub->inboxes[rank].messages_end = &hub->inboxes[rank].messages;
        hub->inboxes[rank].sent_end = &hub->inboxes[rank].sent;
    }
    sti_mutex_unlock(&hub->lock);
    if (rc < 0)
        sti_comm_hub_free(hub);
    else
        *ret_hub = hub;
    return rc;
}

void
sti_comm_hub_free(struct sti_comm_hub *hub) STI_NO_ANALYSIS
{
    if (!hub)
        return;
    sti_mem_free(hub->inboxes); /* nobody else is there any more */
    sti_mutex_fini(&hub->lock);
    sti_mem_free(hub);
}

static void
ring(struct inbox *inbox)
{
    const uint64_t one = 1;

    if (!inbox->is_armed || !inbox->link)
        return;
    inbox->is_armed = false;
    ssize_t n = write(inbox->link->fd, &one, sizeof(one));
    (void)n; /* it can only fail where it is readable already */
}

static void
give_back_locked(struct sti_comm_hub *hub, uint32_t rank, struct sti_link_send *send, int code)
    STI_REQUIRES(&hub->lock)
{
    struct inbox *inbox = &hub->inboxes[rank];

    send->code = code;
    send->next = NULL;
    *inbox->sent_end = send;
    inbox->sent_end = &send->next;
    ring(inbox);
}

static int
local_open(struct sti_link **ret_link, const struct sti_link_opts *opts, stk_error *err)
{
    struct sti_link *link = sti_mem_new(1, sizeof(*link));
    bool is_mine = false;
    int rc = -ENOMEM;

    if (!link || opts->hub->world != opts->world) {
        rc = link ? -EINVAL : rc;
        goto err_free;
    }
    link->hub = opts->hub;
    link->rank = opts->rank;
    link->events = opts->events;
    link->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->fd < 0) {
        rc = -errno;
        goto err_free;
    }
    sti_mutex_lock(&opts->hub->lock);
    if (!opts->hub->inboxes[opts->rank].link) {
        opts->hub->inboxes[opts->rank].link = link;
        is_mine = true;
    }
    sti_mutex_unlock(&opts->hub->lock);
    if (!is_mine) {
        rc = -EEXIST;
        goto err_fd;
    }
    *ret_link = link;
    return 0;

err_fd:
    (void)close(link->fd); /* never used */
err_free:
    sti_mem_free(link);
    return sti_error_set(err, rc, "rank %u cannot join the hub of this process: %s", opts->rank,
                         sti_error_text(rc));
}

static void
local_address(struct sti_link *link, const void **ret_bytes, uint32_t *ret_n_bytes)
{
    (void)link; /* the hub knows where everybody is */
    *ret_bytes = NULL;
    *ret_n_bytes = 0;
}

static void
local_meet(struct sti_link *link, uint32_t peer, const void *address, uint32_t n_bytes)
{
    (void)link;
    (void)peer;
    (void)address;
    (void)n_bytes;
}

static void
local_send(struct sti_link *link, struct sti_link_send *send)
{
    struct sti_comm_hub *hub = link->hub;

    link->n_out++;
    send->next = NULL;
    /* The receiver reads who it is from: its way back. */
    send->code = (int)link->rank;
    sti_mutex_lock(&hub->lock);
    struct inbox *inbox = &hub->inboxes[send->peer];
    if (!inbox->link) {
        give_back_locked(hub, link->rank, send, -ECONNRESET);
    } else {
        *inbox->messages_end = send;
        inbox->messages_end = &send->next;
        ring(inbox);
    }
    sti_mutex_unlock(&hub->lock);
}

/* Takes what a rank has not looked at yet back from it: it is not going to be answered. */
static void
local_drop(struct sti_link *link, uint32_t peer)
{
    struct sti_comm_hub *hub = link->hub;

    sti_mutex_lock(&hub->lock);
    struct inbox *inbox = &hub->inboxes[peer];
    for (struct sti_link_send **at = &inbox->messages; *at;) {
        struct sti_link_send *send = *at;

        if (send->code != (int)link->rank) {
            at = &send->next;
            continue;
        }
        *at = send->next;
        if (!*at)
            inbox->messages_end = at;
        give_back_locked(hub, link->rank, send, -ECANCELED);
    }
    sti_mutex_unlock(&hub->lock);
}

static int
local_fd(const struct sti_link *link)
{
    return link->fd;
}

static int
local_arm(struct sti_link *link)
{
    struct inbox *inbox;
    bool is_busy;

    sti_mutex_lock(&link->hub->lock);
    inbox = &link->hub->inboxes[link->rank];
    is_busy = inbox->messages || inbox->sent;
    inbox->is_armed = !is_busy;
    sti_mutex_unlock(&link->hub->lock);
    return is_busy ? -EBUSY : 0;
}

/* Takes the first message, or NULL. It is the receiver's until it is given back. */
static struct sti_link_send *
next_message(struct sti_link *link)
{
    struct sti_comm_hub *hub = link->hub;

    sti_mutex_lock(&hub->lock);
    struct inbox *inbox = &hub->inboxes[link->rank];
    struct sti_link_send *send = inbox->messages;
    if (send) {
        inbox->messages = send->next;
        if (!inbox->messages)
            inbox->messages_end = &inbox->messages;
    }
    sti_mutex_unlock(&hub->lock);
    return send;
}

static bool
run_sent(struct sti_link *link)
{
    struct sti_comm_hub *hub = link->hub;

    sti_mutex_lock(&hub->lock);
    struct inbox *inbox = &hub->inboxes[link->rank];
    struct sti_link_send *sent = inbox->sent;
    inbox->sent = NULL;
    inbox->sent_end = &inbox->sent;
    sti_mutex_unlock(&hub->lock);
    bool is_busy = sent != NULL;
    for (struct sti_link_send *next; sent; sent = next) {
        uint32_t peer = sent->peer;
        int code = sent->code;

        next = sent->next;
        link->n_out--;
        sent->done(sent, code);
        if (code == -ECONNRESET)
            link->events.lost(link->events.context, peer, code);
    }
    return is_busy;
}

static bool
local_progress(struct sti_link *link)
{
    uint64_t count;
    bool is_busy = false;
    struct sti_link_send *send;
    ssize_t n = read(link->fd, &count, sizeof(count));

    (void)n; /* there may be nothing to take */
    while ((send = next_message(link))) {
        struct sti_link_body body = {.n_bytes = send->n_body, .bytes = send->body};
        uint32_t from = (uint32_t)send->code;

        link->events.message(link->events.context, send->head, send->n_head, &body);
        sti_mutex_lock(&link->hub->lock);
        give_back_locked(link->hub, from, send, 0);
        sti_mutex_unlock(&link->hub->lock);
        is_busy = true;
    }
    return run_sent(link) || is_busy;
}

/* What is on its way is given the time to be read. Then it is taken back; a message that
 * another rank is reading this moment is waited for: it does not take long, and the memory
 * is the caller's afterwards. */
static void
local_close(struct sti_link *link, uint64_t timeout_ns)
{
    struct sti_comm_hub *hub = link->hub;
    uint64_t until_ns = sti_clock_ns() + timeout_ns;

    sti_mutex_lock(&hub->lock);
    struct inbox *inbox = &hub->inboxes[link->rank];
    inbox->link = NULL;
    struct sti_link_send *messages = inbox->messages;
    inbox->messages = NULL;
    inbox->messages_end = &inbox->messages;
    for (struct sti_link_send *next; messages; messages = next) {
        next = messages->next;
        give_back_locked(hub, (uint32_t)messages->code, messages, -ECONNRESET);
    }
    sti_mutex_unlock(&hub->lock);
    /* Nothing more comes to this rank, so two that close do not wait for each other. */
    while (link->n_out > 0 && sti_clock_ns() < until_ns)
        if (!run_sent(link))
            sti_thread_yield();
    while (link->n_out > 0) {
        if (!run_sent(link))
            sti_thread_yield();
        for (uint32_t peer = 0; link->n_out > 0 && peer < hub->world; peer++)
            local_drop(link, peer);
    }
    (void)close(link->fd); /* an event's: nothing to lose */
    sti_mem_free(link);
}

const struct sti_method sti_method_local = {
    .name = "local",
    .open = local_open,
    .close = local_close,
    .address = local_address,
    .meet = local_meet,
    .send = local_send,
    .drop = local_drop,
    .fd = local_fd,
    .arm = local_arm,
    .progress = local_progress,
};
