/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static placement over N ranks. Invariant: the bytes that a rank holds in a tier never
 * exceed its capacity, and room + held = capacity at every step. Pure; any thread, one
 * per assignment.
 */
#include "policy/assign.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "order/mix.h"

#define SHORT_PIECE 15

static uint32_t
bytes_of(const struct sti_assign_input *input, uint64_t sample)
{
    return input->bytes ? input->bytes[sample] : input->same_bytes;
}

/* Where ties go: the smaller first. */
static uint32_t
tie_key(const struct sti_assign_input *input, uint64_t sample, uint32_t rank)
{
    if (input->ties == STI_ASSIGN_TIES_ID)
        return (uint32_t)sample;
    uint64_t row = sti_mix(input->seed + (rank + UINT64_C(1)) * STI_MIX_INCREMENT);
    return (uint32_t)(sti_mix(row + (sample + 1) * STI_MIX_INCREMENT) >> 32);
}

int
sti_assignment_init(struct sti_assignment *assignment, const struct sti_assign_input *input)
{
    *assignment = (struct sti_assignment){
        .n_samples = input->n_samples,
        .n_ranks = input->n_ranks,
        .n_words = (input->n_ranks + 63) / 64,
    };
    uint64_t n_words = assignment->n_words * input->n_samples;
    assignment->held = sti_mem_new(n_words, sizeof(uint64_t));
    assignment->on_ssd = sti_mem_new(n_words, sizeof(uint64_t));
    assignment->ram_bytes = sti_mem_new(input->n_ranks, sizeof(uint64_t));
    assignment->ssd_bytes = sti_mem_new(input->n_ranks, sizeof(uint64_t));
    if (!assignment->held || !assignment->on_ssd || !assignment->ram_bytes ||
        !assignment->ssd_bytes)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < input->n_ranks; rank++) {
        assignment->ram_bytes[rank] = input->ram_bytes[rank];
        assignment->ssd_bytes[rank] = input->ssd_bytes[rank];
    }
    return 0;
}

void
sti_assignment_fini(struct sti_assignment *assignment)
{
    sti_mem_free(assignment->held);
    sti_mem_free(assignment->on_ssd);
    sti_mem_free(assignment->ram_bytes);
    sti_mem_free(assignment->ssd_bytes);
    *assignment = (struct sti_assignment){0};
}

bool
sti_assignment_hold(struct sti_assignment *assignment, uint64_t sample, uint32_t rank,
                    uint32_t n_bytes)
{
    uint64_t word = sample * assignment->n_words + rank / 64;
    uint64_t bit = UINT64_C(1) << rank % 64;

    if (n_bytes <= assignment->ram_bytes[rank]) {
        assignment->ram_bytes[rank] -= n_bytes;
    } else if (n_bytes <= assignment->ssd_bytes[rank]) {
        assignment->ssd_bytes[rank] -= n_bytes;
        assignment->on_ssd[word] |= bit;
    } else {
        return false;
    }
    assignment->held[word] |= bit;
    return true;
}

void
sti_assignment_hold_warm(struct sti_assignment *assignment, uint64_t sample, uint32_t rank,
                         uint32_t n_bytes)
{
    uint64_t word = sample * assignment->n_words + rank / 64;
    uint64_t bit = UINT64_C(1) << rank % 64;

    if (n_bytes <= assignment->ram_bytes[rank])
        assignment->ram_bytes[rank] -= n_bytes;
    else
        assignment->on_ssd[word] |= bit;
    assignment->held[word] |= bit;
}

static bool
is_held(const struct sti_assignment *assignment, uint64_t sample)
{
    for (uint32_t word = 0; word < assignment->n_words; word++)
        if (assignment->held[sample * assignment->n_words + word])
            return true;
    return false;
}

uint32_t
sti_assignment_peer(const struct sti_assignment *assignment, uint64_t sample, uint32_t rank)
{
    uint32_t on_ssd = STI_ASSIGN_NOBODY;

    if (!is_held(assignment, sample))
        return STI_ASSIGN_NOBODY;
    for (uint32_t step = 1; step < assignment->n_ranks; step++) {
        uint32_t other = (rank + step) % assignment->n_ranks;

        if (!sti_assignment_has(assignment, sample, other))
            continue;
        if (!sti_assignment_on_ssd(assignment, sample, other))
            return other;
        if (on_ssd == STI_ASSIGN_NOBODY)
            on_ssd = other;
    }
    return on_ssd;
}

static int
compare(const void *a, const void *b)
{
    uint64_t left = ((const uint64_t *)a)[0];
    uint64_t right = ((const uint64_t *)b)[0];

    return left < right ? -1 : left > right;
}

/* What is sorted: the key (uses falling, then the tie's rule) and the sample. */
struct wanted {
    uint64_t key;
    uint64_t sample;
};

static void
swap(struct wanted *a, struct wanted *b)
{
    struct wanted kept = *a;

    *a = *b;
    *b = kept;
}

/* Moves the middle of three by key to the place before the last, and what is not smaller
 * than it behind what is not larger. Returns where it ends up. */
static uint64_t
partition(struct wanted *list, uint64_t first, uint64_t last)
{
    uint64_t middle = first + (last - first) / 2;
    uint64_t low = first;
    uint64_t high = last - 1;

    if (list[middle].key < list[first].key)
        swap(&list[middle], &list[first]);
    if (list[last].key < list[middle].key)
        swap(&list[last], &list[middle]);
    if (list[middle].key < list[first].key)
        swap(&list[middle], &list[first]);
    uint64_t pivot = list[middle].key;
    swap(&list[middle], &list[high]);
    for (;;) {
        while (list[++low].key < pivot)
            ;
        while (pivot < list[--high].key)
            ;
        if (low >= high)
            break;
        swap(&list[low], &list[high]);
    }
    swap(&list[low], &list[last - 1]);
    return low;
}

/*
 * Sorts by key as the usual library routine does (Sedgewick, "Implementing Quicksort
 * programs", CACM 21(10), 1978: median of three, short pieces by insertion), which leaves
 * equal keys in an order of its own. Only for STI_ASSIGN_TIES_UNSTABLE.
 */
static void
sort_unstable(struct wanted *list, uint64_t n)
{
    uint64_t ends[64]; /* pieces still to be sorted; the shorter one is done first */
    uint32_t n_ends = 0;
    uint64_t first = 0;
    uint64_t last = n - 1;

    for (;;) {
        while (last - first > SHORT_PIECE) {
            uint64_t middle = partition(list, first, last);
            bool left_is_shorter = middle - first < last - middle;

            ends[n_ends++] = left_is_shorter ? middle + 1 : first;
            ends[n_ends++] = left_is_shorter ? last : middle - 1;
            first = left_is_shorter ? first : middle + 1;
            last = left_is_shorter ? middle - 1 : last;
        }
        for (uint64_t at = first + 1; at <= last; at++) {
            struct wanted moved = list[at];
            uint64_t to = at;

            for (; to > first && moved.key < list[to - 1].key; to--)
                list[to] = list[to - 1];
            list[to] = moved;
        }
        if (n_ends == 0)
            return;
        last = ends[--n_ends];
        first = ends[--n_ends];
    }
}

/* The published policy with a library's sort: all samples, by uses alone. */
static void
fill_rank_unstable(struct sti_assignment *assignment, const struct sti_assign_input *input,
                   uint32_t rank, struct wanted *wanted)
{
    uint64_t n = input->n_samples;

    for (uint64_t sample = 0; sample < n; sample++)
        wanted[sample] =
            (struct wanted){UINT8_MAX - input->counts[sample * input->n_ranks + rank], sample};
    sort_unstable(wanted, n);
    for (uint64_t at = 0; at < n; at++)
        if (!sti_assignment_hold(assignment, wanted[at].sample, rank,
                                 bytes_of(input, wanted[at].sample)))
            break;
}

/* Lists what a rank reads and does not hold, by uses falling; those of c uses begin at
 * ends[c] and end before ends[c - 1]. */
static void
list_by_uses(const struct sti_assignment *assignment, const struct sti_assign_input *input,
             uint32_t rank, struct wanted *wanted, uint64_t ends[UINT8_MAX + 1])
{
    const uint8_t *counts = input->counts + rank;
    uint64_t n;

    memset(ends, 0, (UINT8_MAX + 1) * sizeof(*ends));
    for (uint64_t sample = 0; sample < input->n_samples; sample++)
        ends[counts[sample * input->n_ranks]] += !sti_assignment_has(assignment, sample, rank);
    for (uint32_t uses = UINT8_MAX; uses-- > 1;)
        ends[uses] += ends[uses + 1];
    n = ends[1];
    for (uint64_t sample = input->n_samples; sample-- > 0;) {
        uint8_t uses = counts[sample * input->n_ranks];

        if (uses && !sti_assignment_has(assignment, sample, rank))
            wanted[--ends[uses]] = (struct wanted){tie_key(input, sample, rank), sample};
    }
    ends[0] = n;
}

static uint64_t
sum_bytes(const struct sti_assign_input *input, const struct wanted *list, uint64_t n)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += bytes_of(input, list[i].sample);
    return sum;
}

/* Fills a rank with what it reads most and does not hold yet. wanted: room for all
 * samples. Only where not all of equally many uses fit does the tie's rule matter, so
 * only they are sorted. */
static void
fill_rank(struct sti_assignment *assignment, const struct sti_assign_input *input, uint32_t rank,
          struct wanted *wanted)
{
    uint64_t ends[UINT8_MAX + 1];
    uint64_t first = 0;
    bool is_full = false;

    list_by_uses(assignment, input, rank, wanted, ends);
    for (uint32_t uses = UINT8_MAX; uses > 0; uses--) {
        struct wanted *list = wanted + first;
        uint64_t n = ends[uses - 1] - first;

        first = ends[uses - 1];
        if (assignment->ram_bytes[rank] + assignment->ssd_bytes[rank] == 0)
            break;
        if (!is_full && sum_bytes(input, list, n) > assignment->ram_bytes[rank])
            qsort(list, n, sizeof(*list), compare);
        for (uint64_t i = 0; i < n; i++) /* one does not fit: a smaller one may */
            is_full |= !sti_assignment_hold(assignment, list[i].sample, rank,
                                            bytes_of(input, list[i].sample));
    }
}

static int
fill_ranks(struct sti_assignment *assignment, const struct sti_assign_input *input)
{
    struct wanted *wanted = sti_mem_new(input->n_samples, sizeof(*wanted));

    if (!wanted)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < input->n_ranks; rank++) {
        if (assignment->ram_bytes[rank] + assignment->ssd_bytes[rank] == 0)
            continue;
        if (input->ties == STI_ASSIGN_TIES_UNSTABLE)
            fill_rank_unstable(assignment, input, rank, wanted);
        else
            fill_rank(assignment, input, rank, wanted);
    }
    sti_mem_free(wanted);
    return 0;
}

int
sti_assign_paper(struct sti_assignment *ret_assignment, const struct sti_assign_input *input)
{
    int rc = sti_assignment_init(ret_assignment, input);

    return rc ? rc : fill_ranks(ret_assignment, input);
}

static uint64_t
room_of(const struct sti_assignment *assignment, uint32_t rank, uint32_t n_bytes)
{
    uint64_t ram = assignment->ram_bytes[rank];
    uint64_t ssd = assignment->ssd_bytes[rank];

    return ram >= n_bytes || ssd >= n_bytes ? ram + ssd : 0;
}

/* Of the ranks that read a sample so many times, the one with most room; nobody if none
 * has any. Taking the emptiest keeps the choice open for those that come later. */
static uint32_t
find_holder(const struct sti_assignment *assignment, const struct sti_assign_input *input,
            uint64_t sample, uint32_t count)
{
    const uint8_t *counts = input->counts + sample * input->n_ranks;
    uint32_t best = STI_ASSIGN_NOBODY;
    uint64_t most = 0;

    assert(input->n_ranks > 0);
    uint32_t first = tie_key(input, sample, 0) % input->n_ranks;

    for (uint32_t step = 0; step < input->n_ranks; step++) {
        uint32_t rank =
            first + step < input->n_ranks ? first + step : first + step - input->n_ranks;

        if (counts[rank] != count)
            continue;
        uint64_t room = room_of(assignment, rank, bytes_of(input, sample));
        if (room > most) {
            most = room;
            best = rank;
        }
    }
    return best;
}

static bool
is_warm(const struct sti_assign_input *input, uint64_t sample)
{
    return input->warm && input->warm[sample] != STI_ASSIGN_COLD;
}

/* Gives every sample that no SSD has one holder, the most used first. level: per sample, the
 * number of uses that its holder would have at most; falls as ranks fill up. */
static void
give_first_copies(struct sti_assignment *assignment, const struct sti_assign_input *input,
                  uint8_t *level)
{
    uint32_t top = 0;

    for (uint64_t sample = 0; sample < input->n_samples; sample++) {
        const uint8_t *counts = input->counts + sample * input->n_ranks;

        if (is_warm(input, sample))
            continue;
        for (uint32_t rank = 0; rank < input->n_ranks; rank++)
            level[sample] = counts[rank] > level[sample] ? counts[rank] : level[sample];
        top = level[sample] > top ? level[sample] : top;
    }
    for (uint32_t count = top + 1; count-- > 0;) {
        for (uint64_t sample = 0; sample < input->n_samples; sample++) {
            if (level[sample] != count || is_warm(input, sample))
                continue;
            uint32_t rank = find_holder(assignment, input, sample, count);
            if (rank != STI_ASSIGN_NOBODY) {
                (void)sti_assignment_hold(assignment, sample, rank, bytes_of(input, sample));
                level[sample] = UINT8_MAX; /* done: above every level that is still to come */
            } else if (count > 0) {
                level[sample] = (uint8_t)(count - 1);
            }
        }
    }
}

int
sti_assign_coordinated(struct sti_assignment *ret_assignment, const struct sti_assign_input *input)
{
    int rc = sti_assignment_init(ret_assignment, input);
    uint8_t *level = sti_mem_new(input->n_samples, 1);

    if (!rc && !level)
        rc = -ENOMEM;
    if (!rc)
        give_first_copies(ret_assignment, input, level);
    for (uint64_t sample = 0; !rc && sample < input->n_samples; sample++)
        if (is_warm(input, sample))
            sti_assignment_hold_warm(ret_assignment, sample, input->warm[sample],
                                     bytes_of(input, sample));
    sti_mem_free(level);
    return rc;
}
