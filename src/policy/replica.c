/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies by next use. A list per holder and epoch takes what it keeps for that epoch, one
 * more what it keeps for an epoch that is not known yet. Within a list nothing is better
 * than anything else, so room is made from the latest list's end.
 *
 * Invariant: a held copy is in exactly one list, except in the epoch that it was kept
 * for: then it is in none until it is read, and nothing can push it out.
 */
#include "policy/replica.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"

#define NOBODY UINT16_MAX

static uint32_t
bytes_of(const struct sti_replicas *replicas, uint32_t sample)
{
    return replicas->input.bytes ? replicas->input.bytes[sample] : replicas->input.same_bytes;
}

static struct sti_replica_list *
list_of(struct sti_replicas *replicas, uint32_t holder, uint64_t epoch)
{
    return &replicas->lists[(uint64_t)holder * (replicas->n_ahead + 1) + epoch % replicas->n_ahead];
}

static struct sti_replica_list *
unknown_of(struct sti_replicas *replicas, uint32_t holder)
{
    return &replicas->lists[(uint64_t)holder * (replicas->n_ahead + 1) + replicas->n_ahead];
}

uint32_t
sti_replicas_ahead(uint64_t n_samples, uint64_t n_known, uint64_t max_bytes)
{
    uint64_t n = max_bytes / sizeof(uint16_t) / (n_samples ? n_samples : 1);

    n = n < n_known ? n : n_known;
    return (uint32_t)(n < STI_REPLICA_AHEAD_MAX ? n : STI_REPLICA_AHEAD_MAX);
}

int
sti_replicas_init(struct sti_replicas *replicas, const struct sti_assign_input *input,
                  uint32_t n_ahead)
{
    int rc;

    *replicas = (struct sti_replicas){.input = *input, .n_ahead = n_ahead};
    replicas->input.counts = NULL;
    rc = sti_assignment_init(&replicas->held, input);
    if (rc)
        return rc;
    replicas->input.ram_bytes = replicas->input.ssd_bytes = NULL; /* copied just now */
    replicas->lists =
        sti_mem_new((uint64_t)input->n_ranks * (n_ahead + 1), sizeof(*replicas->lists));
    replicas->readers = sti_mem_new(input->n_samples * n_ahead + 1, sizeof(*replicas->readers));
    if (!replicas->lists || !replicas->readers)
        return -ENOMEM;
    memset(replicas->readers, 0xff, input->n_samples * n_ahead * sizeof(*replicas->readers));
    return 0;
}

void
sti_replicas_fini(struct sti_replicas *replicas)
{
    uint64_t n = (uint64_t)replicas->held.n_ranks * (replicas->n_ahead + 1);

    for (uint64_t at = 0; replicas->lists && at < n; at++)
        sti_mem_free(replicas->lists[at].items);
    sti_mem_free(replicas->lists);
    sti_mem_free(replicas->readers);
    sti_assignment_fini(&replicas->held);
    *replicas = (struct sti_replicas){0};
}

void
sti_replicas_order(struct sti_replicas *replicas, uint64_t epoch, const uint32_t *ids, uint64_t n,
                   const uint16_t *holder_of, uint32_t n_ranks)
{
    uint64_t width = replicas->n_ahead;
    uint16_t *column = replicas->readers + (width ? epoch % width : 0);
    uint32_t rank = 0;

    if (width == 0)
        return;
    for (uint64_t sample = 0; n < replicas->input.n_samples && sample < replicas->input.n_samples;
         sample++)
        column[sample * width] = NOBODY;
    for (uint64_t at = 0; at < n; at++) {
        column[ids[at] * width] = holder_of[rank];
        rank = rank + 1 == n_ranks ? 0 : rank + 1;
    }
}

/* Adds a sample to a list; false without memory. */
static bool
push(struct sti_replica_list *list, uint32_t sample)
{
    if (list->n == list->n_max) {
        uint64_t n_max = list->n_max ? 2 * list->n_max : 64;
        uint32_t *items = list->items ? sti_mem_resize(list->items, n_max, sizeof(*items))
                                      : sti_mem_new(n_max, sizeof(*items));

        if (!items)
            return false;
        list->items = items;
        list->n_max = n_max;
    }
    list->items[list->n++] = sample;
    return true;
}

static void
drop(struct sti_replicas *replicas, uint32_t sample, uint32_t holder)
{
    struct sti_assignment *held = &replicas->held;
    uint64_t word = (uint64_t)sample * held->n_words + holder / 64;
    uint64_t bit = UINT64_C(1) << holder % 64;
    uint64_t *room = held->on_ssd[word] & bit ? held->ssd_bytes : held->ram_bytes;

    assert(held->held[word] & bit);
    room[holder] += bytes_of(replicas, sample);
    held->held[word] &= ~bit;
    held->on_ssd[word] &= ~bit;
}

/* The largest that a holder can take of one sample. */
static uint64_t
spare_bytes(const struct sti_replicas *replicas, uint32_t holder)
{
    uint64_t ram_bytes = replicas->held.ram_bytes[holder];
    uint64_t ssd_bytes = replicas->held.ssd_bytes[holder];

    return ram_bytes > ssd_bytes ? ram_bytes : ssd_bytes;
}

bool
sti_replicas_fill(struct sti_replicas *replicas, const struct sti_assignment *first, uint64_t epoch,
                  const uint32_t *ids, uint64_t n)
{
    uint64_t slot = epoch % replicas->n_ahead;
    bool is_any_held = false;

    for (uint64_t at = 0; at < n; at++) {
        uint32_t holder = replicas->readers[(uint64_t)ids[at] * replicas->n_ahead + slot];
        uint32_t n_bytes = bytes_of(replicas, ids[at]);
        bool is_held = sti_assignment_has(first, ids[at], holder) ||
                       sti_replicas_has(replicas, ids[at], holder);

        if (!sti_replica_comes_ahead(is_held, spare_bytes(replicas, holder), n_bytes))
            continue;
        is_any_held |= sti_assignment_hold(&replicas->held, ids[at], holder, n_bytes);
        if (!push(list_of(replicas, holder, epoch), ids[at]))
            drop(replicas, ids[at], holder);
    }
    return is_any_held;
}

/* Of the copies for an epoch that was not known, those that the newly known one reads. */
static void
sort_unknown(struct sti_replicas *replicas, uint32_t holder, uint64_t epoch)
{
    struct sti_replica_list *unknown = unknown_of(replicas, holder);
    uint64_t width = replicas->n_ahead;
    uint64_t n = 0;

    for (uint64_t at = 0; at < unknown->n; at++) {
        uint32_t sample = unknown->items[at];

        if (replicas->readers[sample * width + epoch % width] != holder)
            unknown->items[n++] = sample;
        else if (!push(list_of(replicas, holder, epoch), sample))
            drop(replicas, sample, holder);
    }
    unknown->n = n;
}

void
sti_replicas_begin(struct sti_replicas *replicas, uint64_t epoch, uint64_t known_end,
                   bool is_run_end)
{
    uint64_t first_new = replicas->known_end;

    assert(known_end <= epoch + 1 + replicas->n_ahead);
    replicas->known_end = known_end;
    replicas->is_run_end = is_run_end;
    if (replicas->n_ahead == 0)
        return;
    for (uint32_t holder = 0; holder < replicas->held.n_ranks; holder++) {
        if (epoch > 0)
            list_of(replicas, holder, epoch)->n = 0; /* they are read now */
        for (uint64_t known = first_new; known < known_end; known++)
            sort_unknown(replicas, holder, known);
        for (struct sti_replica_list *left = unknown_of(replicas, holder);
             is_run_end && left->n > 0;)
            drop(replicas, left->items[--left->n], holder); /* never read again */
    }
}

/* The epoch behind this one in which a holder reads a sample; 0: none that is known. */
static uint64_t
next_epoch(const struct sti_replicas *replicas, uint64_t epoch, uint32_t sample, uint32_t holder)
{
    uint64_t width = replicas->n_ahead;
    const uint16_t *row = replicas->readers + sample * width;
    uint64_t slot = width ? (epoch + 1) % width : 0;

    for (uint64_t next = epoch + 1; next < replicas->known_end; next++) {
        if (row[slot] == holder)
            return next;
        slot = slot + 1 == width ? 0 : slot + 1;
    }
    return 0;
}

/* Takes the copy away that its holder needs latest, if it is later than an epoch (0:
 * unknown). */
static bool
push_out(struct sti_replicas *replicas, uint64_t epoch, uint64_t next, uint32_t holder)
{
    struct sti_replica_list *list = unknown_of(replicas, holder);

    if (next == 0)
        return false;
    for (uint64_t at = epoch + replicas->n_ahead; list->n == 0 && at > next; at--)
        list = list_of(replicas, holder, at);
    if (list->n == 0)
        return false;
    drop(replicas, list->items[--list->n], holder);
    return true;
}

void
sti_replicas_used(struct sti_replicas *replicas, uint64_t epoch, uint32_t sample, uint32_t holder)
{
    uint32_t n_bytes = bytes_of(replicas, sample);
    uint64_t next = next_epoch(replicas, epoch, sample, holder);
    struct sti_replica_list *list;

    if (sti_replicas_has(replicas, sample, holder)) {
        if (epoch == 0 || replicas->n_ahead == 0)
            return; /* was there before the run, or is for an unknown epoch: it is in its list */
        drop(replicas, sample, holder);
    }
    if (next == 0 && replicas->is_run_end)
        return;
    while (!sti_assignment_hold(&replicas->held, sample, holder, n_bytes))
        if (!push_out(replicas, epoch, next, holder))
            return;
    list = next ? list_of(replicas, holder, next) : unknown_of(replicas, holder);
    if (!push(list, sample))
        drop(replicas, sample, holder);
}
