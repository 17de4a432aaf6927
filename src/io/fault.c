/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault method. An operation given to it is in flight twice: it waits to be issued,
 * when its effect on the file system becomes visible and may be found after a crash; then
 * it waits to be completed, when its submitter learns the result and a sync makes durable
 * what it covers. Both are steps, and the power can be cut before any of them. Operations
 * are issued at each flush and wait, all of them, and completed at each wait, all (in
 * order) or a few (reordered).
 *
 * A sync covers what had completed when it was submitted, not when it was started: the
 * stamp is taken at submit (op->slot, which only the uring method needs otherwise).
 *
 * Invariant: flights[0 .. n_flights) are the operations given and not completed, oldest
 * first; after the power is cut nothing changes the file system.
 */
#include "io/fault.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "io/aio_internal.h"
#include "io/fault_fs.h"

#define MAX_RULES 16u

struct flight {
    struct sti_aio_op *op;
    struct sti_fault_node *synced; /* the object of a sync */
    uint64_t op_idx;
    uint64_t held_until; /* as many operations must have completed */
    int32_t sync_error;
    bool is_issued;
    bool is_hung;
};

struct sti_fault {
    struct sti_fault_head head;
    struct sti_fault_fs fs;
    struct sti_aio *aio;
    struct flight *flights; /* queue_depth entries, while an aio is open */
    uint32_t n_flights;
    uint64_t n_ops;
    uint64_t n_completed;
    uint64_t n_steps;
    uint64_t crash_step;
    bool is_off;
    uint64_t order; /* 0, or the state of the seeded order */
    uint32_t n_rules;
    struct sti_fault_rule rules[MAX_RULES];
    uint64_t n_matched[MAX_RULES];
};

/* ---- rules ------------------------------------------------------------------------- */

static bool
is_on_path(const struct sti_fault *fault, const struct sti_aio_op *op, const char *part)
{
    const char *path = op->path;

    switch (op->kind) {
    case STI_AIO_CLOSE:
    case STI_AIO_READ:
    case STI_AIO_WRITE:
    case STI_AIO_SYNC:
    case STI_AIO_TRUNCATE:
    case STI_AIO_ALLOCATE:
        path = sti_fault_fs_path(&fault->fs, op->fd);
        break;
    case STI_AIO_RENAME:
        if (strstr(op->path2, part))
            return true;
        break;
    case STI_AIO_READ_FILE:
    case STI_AIO_OPEN:
    case STI_AIO_MKDIR:
    case STI_AIO_UNLINK:
    case STI_AIO_SYNC_DIR:
    case STI_AIO_LIST:
    case STI_AIO_STATX:
    case STI_AIO_KINDS:
        break;
    }
    return path && strstr(path, part);
}

static const struct sti_fault_rule *
match_rule(struct sti_fault *fault, const struct sti_aio_op *op, uint64_t op_idx)
{
    for (uint32_t at = 0; at < fault->n_rules; at++) {
        const struct sti_fault_rule *rule = &fault->rules[at];

        if ((rule->op_idx != STI_FAULT_ANY && rule->op_idx != op_idx) ||
            (rule->kinds != 0 && !(rule->kinds & (1u << op->kind))) ||
            (rule->path_part && !is_on_path(fault, op, rule->path_part)))
            continue;
        uint64_t n = fault->n_matched[at]++;
        if (n >= rule->n_skip && (rule->n_times == 0 || n < (uint64_t)rule->n_skip + rule->n_times))
            return rule;
    }
    return NULL;
}

/* ---- steps ------------------------------------------------------------------------- */

/* Takes a step; false when there is no power for it. */
static bool
take_step(struct sti_fault *fault)
{
    if (fault->n_steps == fault->crash_step)
        fault->is_off = true;
    if (fault->is_off)
        return false;
    fault->n_steps++;
    return true;
}

static bool
is_sync(const struct sti_aio_op *op)
{
    return op->kind == STI_AIO_SYNC || op->kind == STI_AIO_SYNC_DIR;
}

static void
issue(struct sti_fault *fault, struct flight *flight)
{
    struct sti_aio_op *op = flight->op;
    uint32_t limit_bytes = UINT32_MAX;

    flight->is_issued = true;
    if (!take_step(fault))
        return;
    flight->op_idx = fault->n_ops++;
    fault->fs.op_idx = flight->op_idx;
    const struct sti_fault_rule *rule = match_rule(fault, op, flight->op_idx);
    if (rule && rule->effect == STI_FAULT_FAIL && !is_sync(op)) {
        op->result = -rule->error;
        return;
    }
    if (rule && rule->effect == STI_FAULT_FAIL)
        flight->sync_error = -rule->error;
    if (rule && rule->effect == STI_FAULT_SHORT)
        limit_bytes = rule->n_bytes;
    if (rule && rule->effect == STI_FAULT_DELAY)
        flight->held_until = fault->n_completed + rule->n_later;
    flight->is_hung = rule && rule->effect == STI_FAULT_HANG;
    op->result = sti_fault_fs_execute(&fault->fs, op, limit_bytes, &flight->synced);
}

static void
issue_all(struct sti_fault *fault)
{
    uint32_t first = fault->n_flights;

    while (first > 0 && !fault->flights[first - 1].is_issued)
        first--;
    /* Reordered: a seeded one of those left is swapped to the front each time. */
    for (uint32_t at = first; at < fault->n_flights; at++) {
        if (fault->order != 0) {
            uint32_t pick =
                at + (uint32_t)(sti_fault_random(&fault->order) % (fault->n_flights - at));
            struct flight picked = fault->flights[pick];

            fault->flights[pick] = fault->flights[at];
            fault->flights[at] = picked;
        }
        issue(fault, &fault->flights[at]);
    }
}

/* What completion does on the disk. */
static void
settle_on_disk(struct sti_fault *fault, const struct flight *flight)
{
    struct sti_aio_op *op = flight->op;

    sti_fault_disk_complete(&fault->fs, flight->op_idx, ++fault->n_completed);
    if (!flight->synced || op->result < 0)
        return;
    if (flight->sync_error != 0) {
        sti_fault_disk_lose(&fault->fs, flight->synced, op->slot);
        op->result = flight->sync_error;
    } else {
        op->result = sti_fault_disk_sync(&fault->fs, flight->synced, op->slot);
    }
}

static void
complete(struct sti_fault *fault, uint32_t at)
{
    struct flight flight = fault->flights[at];

    fault->n_flights--;
    memmove(&fault->flights[at], &fault->flights[at + 1],
            (fault->n_flights - at) * sizeof(fault->flights[0]));
    if (take_step(fault))
        settle_on_disk(fault, &flight);
    else
        flight.op->result = -EIO;
    sti_aio_complete(fault->aio, flight.op);
}

/* Which one completes next: the first (or a seeded one) that neither hangs nor is
 * delayed; only delayed ones left: the first of them. n_flights: none. */
static uint32_t
pick_next(struct sti_fault *fault)
{
    uint32_t delayed = fault->n_flights;
    uint32_t picked = fault->n_flights;
    uint32_t n_able = 0;

    for (uint32_t at = 0; at < fault->n_flights; at++) {
        const struct flight *flight = &fault->flights[at];

        if (flight->is_hung && !fault->is_off)
            continue;
        if (flight->held_until > fault->n_completed && !fault->is_off) {
            delayed = delayed < at ? delayed : at;
            continue;
        }
        n_able++;
        if (n_able == 1 || (fault->order != 0 && sti_fault_random(&fault->order) % n_able == 0))
            picked = at;
    }
    return n_able > 0 ? picked : delayed;
}

/* ---- the method -------------------------------------------------------------------- */

static int
fault_open(struct sti_aio *aio, stk_error *err)
{
    struct sti_fault *fault = aio->method_state;

    assert(!fault->aio);
    fault->flights = sti_mem_new(aio->queue_depth, sizeof(fault->flights[0]));
    if (!fault->flights)
        return sti_error_set(err, -ENOMEM, "no memory for the operations in flight");
    fault->aio = aio;
    return 0;
}

static void
fault_close(struct sti_aio *aio)
{
    struct sti_fault *fault = aio->method_state;

    sti_mem_free(fault->flights);
    fault->flights = NULL;
    fault->aio = NULL;
}

static void
fault_submitted(struct sti_aio *aio, struct sti_aio_op *op)
{
    const struct sti_fault *fault = aio->method_state;

    op->slot = (uint32_t)fault->n_completed;
}

static void
fault_start(struct sti_aio *aio, struct sti_aio_op *op)
{
    struct sti_fault *fault = aio->method_state;

    assert(fault->n_flights < aio->queue_depth);
    fault->flights[fault->n_flights++] = (struct flight){.op = op};
}

static void
fault_flush(struct sti_aio *aio)
{
    struct sti_fault *fault = aio->method_state;

    if (fault->n_flights == 0 || fault->flights[fault->n_flights - 1].is_issued)
        return;
    sti_aio_count(&aio->stats.submit_calls, 1);
    issue_all(fault);
}

static void
fault_wait(struct sti_aio *aio, uint64_t timeout_ns)
{
    struct sti_fault *fault = aio->method_state;
    uint32_t n_limit = UINT32_MAX;
    uint32_t n = 0;

    fault_flush(aio);
    if (fault->order != 0)
        n_limit = 1 + (uint32_t)(sti_fault_random(&fault->order) % 3);
    while (n < n_limit) {
        uint32_t at = pick_next(fault);

        if (at == fault->n_flights)
            break;
        complete(fault, at);
        n++;
    }
    if (n == 0)
        sti_aio_wait_event(aio, timeout_ns);
}

static const struct sti_aio_method fault_method = {
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .submitted = fault_submitted,
    .start = fault_start,
    .flush = fault_flush,
    .wait = fault_wait,
};

/* ---- what tests call --------------------------------------------------------------- */

int
sti_fault_new(struct sti_fault **ret_fault)
{
    struct sti_fault *fault = sti_mem_new(1, sizeof(*fault));

    if (!fault)
        return -ENOMEM;
    fault->head.method = &fault_method;
    fault->crash_step = UINT64_MAX;
    int rc = sti_fault_fs_init(&fault->fs);
    if (rc < 0) {
        sti_mem_free(fault);
        return rc;
    }
    *ret_fault = fault;
    return 0;
}

int
sti_fault_new_crashed(struct sti_fault **ret_fault, const struct sti_fault *from, uint64_t variant)
{
    struct sti_fault *fault;
    int rc = sti_fault_new(&fault);

    if (rc < 0)
        return rc;
    rc = sti_fault_disk_crash(&fault->fs, &from->fs, variant);
    if (rc < 0) {
        sti_fault_free(fault);
        return rc;
    }
    *ret_fault = fault;
    return 0;
}

void
sti_fault_free(struct sti_fault *fault)
{
    if (!fault)
        return;
    assert(!fault->aio);
    sti_fault_fs_fini(&fault->fs);
    sti_mem_free(fault);
}

uint64_t
sti_fault_variants(const struct sti_fault *fault)
{
    return sti_fault_disk_variants(&fault->fs);
}

void
sti_fault_crash_at(struct sti_fault *fault, uint64_t step)
{
    fault->crash_step = step;
}

uint64_t
sti_fault_steps(const struct sti_fault *fault)
{
    return fault->n_steps;
}

uint64_t
sti_fault_ops(const struct sti_fault *fault)
{
    return fault->n_ops;
}

bool
sti_fault_is_off(const struct sti_fault *fault)
{
    return fault->is_off;
}

void
sti_fault_reorder(struct sti_fault *fault, uint64_t seed)
{
    fault->order = seed;
}

uint32_t
sti_fault_open_files(const struct sti_fault *fault)
{
    return fault->fs.n_open;
}

int
sti_fault_put_file(struct sti_fault *fault, const char *path, const void *bytes, size_t n_bytes)
{
    return sti_fault_fs_put(&fault->fs, path, bytes, n_bytes);
}

int
sti_fault_add_rule(struct sti_fault *fault, const struct sti_fault_rule *rule)
{
    if (fault->n_rules == MAX_RULES)
        return -ENOSPC;
    fault->n_matched[fault->n_rules] = 0;
    fault->rules[fault->n_rules++] = *rule;
    return 0;
}

void
sti_fault_clear_rules(struct sti_fault *fault)
{
    fault->n_rules = 0;
}

void
sti_fault_release(struct sti_fault *fault)
{
    for (uint32_t at = 0; at < fault->n_flights; at++)
        fault->flights[at].is_hung = false;
}
