/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking other nodes. Threads leave what they ask in a list; the loop takes it to the
 * comm and marks it done. A peer that has too much to do is asked again after a while,
 * and one that did not answer in time is not waited for again for as long: who looks for
 * many things there would wait for each.
 *
 * Invariant: an ask is in one list until it is done, and is not touched after that.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/depot_internal.h"

#define RETRY_NS (STI_NS_PER_S / 50)
#define PATIENCE_NS (60 * STI_NS_PER_S) /* with a peer that is busy */
#define SILENT_NS (30 * STI_NS_PER_S)

void
sti_depot_put(unsigned char *bytes, uint64_t value, int n)
{
    for (int at = 0; at < n; at++)
        bytes[at] = (unsigned char)(value >> 8 * at);
}

uint64_t
sti_depot_get(const unsigned char *bytes, int n)
{
    uint64_t value = 0;

    for (int at = n; at-- > 0;)
        value = value << 8 | bytes[at];
    return value;
}

/* Returns the message's length, 0: the names are too long. */
static uint32_t
write_small(struct sti_depot_ask *ask)
{
    size_t n_root = ask->root ? strlen(ask->root) : 0;
    size_t n_id = ask->id ? strlen(ask->id) : 0;

    if (n_root > STI_DEPOT_ROOT_MAX || n_id >= STI_ID_SIZE)
        return 0;
    memset(ask->small, 0, STI_DEPOT_HEAD_BYTES);
    sti_depot_put(ask->small, ask->what, 4);
    sti_depot_put(ask->small + 4, ask->n_bytes, 4);
    sti_depot_put(ask->small + 8, ask->step, 8);
    sti_depot_put(ask->small + 16, ask->offset, 8);
    sti_depot_put(ask->small + 24, ask->writer, 4);
    sti_depot_put(ask->small + 28, ask->number, 4);
    sti_depot_put(ask->small + 32, ask->has_one_part, 4);
    sti_depot_put(ask->small + 36, n_root, 4);
    if (n_id > 0)
        memcpy(ask->small + 40, ask->id, n_id);
    if (n_root > 0)
        memcpy(ask->small + STI_DEPOT_HEAD_BYTES, ask->root, n_root);
    return STI_DEPOT_HEAD_BYTES + (uint32_t)n_root;
}

/* ---- the loop ------------------------------------------------------------------- */

static void
end(struct sti_depot *depot, struct sti_depot_ask *ask, int result)
{
    struct sti_depot_ask **at = &depot->under_way;

    while (*at != ask)
        at = &(*at)->next;
    *at = ask->next;
    ask->result = result;
    if (ask->done) {
        ask->done(ask);
        return;
    }
    /* Woken under the lock: whoever sees that it is done may close its aio. */
    sti_mutex_lock(&depot->lock);
    ask->is_done = true;
    sti_aio_wake(ask->aio);
    sti_mutex_unlock(&depot->lock);
}

/* Who has no checkpointer open is told apart from who has no such file. */
static int
result_of(int code)
{
    return code == -ENOENT ? -ENOTCONN : code == STI_DEPOT_NO_FILE ? -ENOENT : code;
}

static void
on_answered(struct sti_comm_request *request)
{
    struct sti_depot_ask *ask = request->context;
    struct sti_depot *depot = ask->depot;
    uint64_t now_ns = sti_clock_ns();
    bool is_busy = request->result == -EAGAIN || (request->result == 0 && request->code == -EAGAIN);

    ask->is_asked = false;
    if (is_busy && !depot->is_leaving && now_ns < ask->due_ns) {
        ask->retry_ns = now_ns + RETRY_NS;
        sti_aio_wake(depot->opts.aio);
        return;
    }
    if (request->result == -ETIMEDOUT)
        depot->silent_ns[ask->peer] = now_ns + SILENT_NS;
    if (request->result < 0 || request->code < 0) {
        end(depot, ask, request->result < 0 ? request->result : result_of(request->code));
    } else if (request->n_bytes < STI_DEPOT_SIZE_BYTES) {
        end(depot, ask, -EPROTO);
    } else {
        const unsigned char *body = request->into;

        depot->silent_ns[ask->peer] = 0;
        ask->got_bytes = (uint32_t)(request->n_bytes - STI_DEPOT_SIZE_BYTES);
        ask->file_bytes = sti_depot_get(body + ask->got_bytes, 8);
        end(depot, ask, 0);
    }
}

static void
begin(struct sti_depot *depot, struct sti_depot_ask *ask, uint64_t now_ns)
{
    uint32_t n_small = write_small(ask);

    if (depot->silent_ns[ask->peer] > now_ns) {
        end(depot, ask, -ETIMEDOUT);
        return;
    }
    ask->request =
        (struct sti_comm_request){.peer = ask->peer,
                                  .verb = __atomic_load_n(&depot->verb, __ATOMIC_ACQUIRE),
                                  .small = ask->small,
                                  .n_small = n_small,
                                  .into = ask->into,
                                  .into_bytes = (uint64_t)ask->n_bytes + STI_DEPOT_SIZE_BYTES,
                                  .done = on_answered,
                                  .context = ask};
    int rc = n_small == 0 ? -ENAMETOOLONG : sti_comm_request(depot->opts.comm, &ask->request);
    ask->is_asked = rc == 0;
    if (rc == -EAGAIN && now_ns < ask->due_ns)
        ask->retry_ns = now_ns + RETRY_NS;
    else if (rc < 0)
        end(depot, ask, rc);
}

static void
take_asked(struct sti_depot *depot, uint64_t now_ns)
{
    struct sti_depot_ask **last = &depot->under_way;

    sti_mutex_lock(&depot->lock);
    struct sti_depot_ask *asked = depot->asked;
    depot->asked = NULL;
    sti_mutex_unlock(&depot->lock);
    while (*last)
        last = &(*last)->next;
    *last = asked;
    for (struct sti_depot_ask *ask = asked; ask; ask = ask->next)
        ask->due_ns = now_ns + PATIENCE_NS;
}

uint64_t
sti_depot_step(void *context)
{
    struct sti_depot *depot = context;
    uint64_t now_ns = sti_clock_ns();
    uint64_t due_ns = sti_serves_step(depot, now_ns);
    struct sti_depot_ask *next;

    take_asked(depot, now_ns);
    for (struct sti_depot_ask *ask = depot->under_way; ask; ask = next) {
        next = ask->next; /* it may be done and gone */
        if (ask->is_asked)
            continue;
        if (depot->is_leaving)
            end(depot, ask, -ECANCELED);
        else if (ask->retry_ns <= now_ns)
            begin(depot, ask, now_ns);
        else if (ask->retry_ns < due_ns)
            due_ns = ask->retry_ns;
    }
    for (const struct sti_depot_ask *ask = depot->under_way; ask; ask = ask->next)
        if (!ask->is_asked && ask->retry_ns < due_ns)
            due_ns = ask->retry_ns;
    if (due_ns == UINT64_MAX)
        return UINT64_MAX;
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

void
sti_depot_leave(struct sti_depot *depot)
{
    depot->is_leaving = true;
    for (struct sti_depot_ask *ask = depot->under_way; ask; ask = ask->next)
        if (ask->is_asked)
            sti_comm_cancel(depot->opts.comm, &ask->request);
    sti_serves_leave(depot);
    sti_aio_wake(depot->opts.aio);
}

bool
sti_depot_is_idle(const struct sti_depot *depot)
{
    return !depot->under_way && depot->n_serving == 0;
}

/* ---- any thread ----------------------------------------------------------------- */

uint64_t
sti_depot_most_bytes(const struct sti_depot *depot)
{
    return depot->opts.most_bytes;
}

void
sti_depot_ask(struct sti_depot *depot, struct sti_depot_ask *ask)
{
    ask->depot = depot;
    ask->is_asked = false;
    ask->is_done = false;
    ask->retry_ns = 0;
    ask->got_bytes = 0;
    ask->file_bytes = 0;
    sti_mutex_lock(&depot->lock);
    ask->next = depot->asked;
    depot->asked = ask;
    sti_mutex_unlock(&depot->lock);
    sti_aio_wake(depot->opts.aio);
}

bool
sti_depot_is_done(struct sti_depot *depot, const struct sti_depot_ask *ask)
{
    sti_mutex_lock(&depot->lock);
    bool is_done = ask->is_done;
    sti_mutex_unlock(&depot->lock);
    return is_done;
}

int
sti_depot_run(struct sti_depot *depot, struct sti_depot_ask *ask)
{
    sti_depot_ask(depot, ask);
    while (!sti_depot_is_done(depot, ask))
        (void)sti_aio_wait(ask->aio, UINT64_MAX);
    return ask->result;
}

/* ---- life ----------------------------------------------------------------------- */

void
sti_depot_set_verb(struct sti_depot *depot, uint32_t verb)
{
    __atomic_store_n(&depot->verb, verb, __ATOMIC_RELEASE);
}

int
sti_depot_new(struct sti_depot **ret_depot, const struct sti_depot_opts *opts)
{
    struct sti_depot *depot = sti_mem_new(1, sizeof(*depot));

    if (!depot)
        return -ENOMEM;
    depot->opts = *opts;
    depot->silent_ns = sti_mem_new(sti_comm_world(opts->comm), sizeof(depot->silent_ns[0]));
    int rc = depot->silent_ns ? sti_mutex_init(&depot->lock, STI_RANK_VOTE) : -ENOMEM;
    if (rc < 0) {
        sti_mem_free(depot->silent_ns);
        sti_mem_free(depot);
        return rc;
    }
    *ret_depot = depot;
    return 0;
}

void
sti_depot_free(struct sti_depot *depot)
{
    if (!depot)
        return;
    assert(sti_depot_is_idle(depot));
    sti_mutex_fini(&depot->lock);
    sti_mem_free(depot->silent_ns);
    sti_mem_free(depot);
}
