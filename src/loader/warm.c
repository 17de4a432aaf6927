/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of samples go round in gatherings of as much as one takes, as many as the longest
 * list needs; every rank knows all lengths beforehand, so all make the same calls. What comes
 * from other ranks is checked: an id is below n_samples, and lists end where they say.
 */
#include "loader/warm.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "policy/assign.h"

#define GAP_BYTES_MAX 10u

/* Writes a gap; returns its length. */
static uint64_t
put_gap(unsigned char *bytes, uint64_t gap)
{
    uint64_t n = 0;

    while (gap >= 0x80) {
        bytes[n++] = (unsigned char)(gap | 0x80);
        gap >>= 7;
    }
    bytes[n++] = (unsigned char)gap;
    return n;
}

/* Walks over what the SSDs have; bytes NULL: only measures. */
static uint64_t
encode(const struct sti_fetcher *fetcher, uint64_t n_samples, unsigned char *bytes)
{
    unsigned char scratch[GAP_BYTES_MAX];
    uint64_t n_bytes = 0;
    uint64_t next = 0; /* the first id that a gap of 0 would name */

    for (uint64_t sample = 0; sample < n_samples; sample++) {
        if (!sti_fetcher_is_on_ssd(fetcher, sample))
            continue;
        n_bytes += put_gap(bytes ? bytes + n_bytes : scratch, sample - next);
        next = sample + 1;
    }
    return n_bytes;
}

int
sti_warm_init(struct sti_warm *warm, const struct sti_fetcher *fetcher, uint64_t n_samples)
{
    *warm = (struct sti_warm){0};
    uint64_t n_bytes = sti_fetcher_ssd_bytes(fetcher) > 0 ? encode(fetcher, n_samples, NULL) : 0;

    if (n_bytes == 0 || n_bytes > STI_WARM_MOST_BYTES)
        return 0;
    warm->bytes = sti_mem_new(n_bytes, 1);
    if (!warm->bytes)
        return -ENOMEM;
    warm->n_bytes = encode(fetcher, n_samples, warm->bytes);
    return 0;
}

void
sti_warm_fini(struct sti_warm *warm)
{
    sti_mem_free(warm->bytes);
    sti_mem_free(warm->rank_of);
    *warm = (struct sti_warm){0};
}

int
sti_warm_decode(uint16_t *rank_of, uint64_t n_samples, uint16_t rank, const unsigned char *bytes,
                uint64_t n_bytes)
{
    uint64_t next = 0;

    for (uint64_t at = 0; at < n_bytes;) {
        uint64_t gap = 0;
        uint32_t shift = 0;

        for (;;) {
            if (at == n_bytes || shift > 56)
                return -EBADMSG;
            gap |= (uint64_t)(bytes[at] & 0x7f) << shift;
            shift += 7;
            if (!(bytes[at++] & 0x80))
                break;
        }
        if (next >= n_samples || gap >= n_samples - next)
            return -EBADMSG;
        if (rank_of[next + gap] == STI_ASSIGN_COLD)
            rank_of[next + gap] = rank;
        next += gap + 1;
    }
    return 0;
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
longest(const uint64_t *lengths, uint32_t world)
{
    uint64_t most = 0;

    for (uint32_t rank = 0; rank < world; rank++)
        most = lengths[rank] > most ? lengths[rank] : most;
    return most;
}

bool
sti_warm_is_told(uint32_t world, uint64_t most_bytes)
{
    uint64_t n_rounds = (most_bytes + STI_COMM_SHARE_MAX - 1) / STI_COMM_SHARE_MAX;
    uint64_t round_bytes = (uint64_t)world * world * STI_COMM_SHARE_MAX;

    return most_bytes <= STI_WARM_MOST_BYTES && n_rounds <= STI_WARM_SENT_MOST_BYTES / round_bytes;
}

/* Gathers all lists, one behind the other. all: room for world shares. */
static int
gather(const struct sti_warm *warm, struct sti_peers *peers, const uint64_t *lengths,
       unsigned char *all, unsigned char *lists, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(peers));
    unsigned char mine[STI_COMM_SHARE_MAX];
    uint64_t most = longest(lengths, world);

    for (uint64_t done = 0; done < most; done += sizeof(mine)) {
        uint64_t begin = 0; /* of a rank's list in lists */

        memset(mine, 0, sizeof(mine));
        if (done < warm->n_bytes)
            memcpy(mine, warm->bytes + done, smaller(warm->n_bytes - done, sizeof(mine)));
        int rc = sti_peers_gather(peers, mine, sizeof(mine), all, err);
        if (rc < 0)
            return rc;
        for (uint32_t rank = 0; rank < world; rank++) {
            if (done < lengths[rank])
                memcpy(lists + begin + done, all + (uint64_t)rank * sizeof(mine),
                       smaller(lengths[rank] - done, sizeof(mine)));
            begin += lengths[rank];
        }
    }
    return 0;
}

int
sti_warm_exchange(struct sti_warm *warm, struct sti_peers *peers, const uint64_t *lengths,
                  uint64_t n_samples, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(peers));
    uint64_t sum = 0;
    int rc = -ENOMEM;

    for (uint32_t rank = 0; rank < world; rank++)
        sum += lengths[rank];
    if (sum == 0 || !sti_warm_is_told(world, longest(lengths, world)))
        return 0;
    unsigned char *all = sti_mem_new(world, STI_COMM_SHARE_MAX);
    unsigned char *lists = sti_mem_new(sum, 1);
    warm->rank_of = sti_mem_new(n_samples, sizeof(*warm->rank_of));
    if (!all || !lists || !warm->rank_of) {
        (void)sti_error_set(err, rc, "no memory for what the ranks' SSDs have");
        goto out;
    }
    memset(warm->rank_of, 0xff, n_samples * sizeof(*warm->rank_of));
    rc = gather(warm, peers, lengths, all, lists, err);
    uint64_t begin = 0;
    for (uint32_t rank = 0; rc == 0 && rank < world; rank++) {
        rc =
            sti_warm_decode(warm->rank_of, n_samples, (uint16_t)rank, lists + begin, lengths[rank]);
        begin += lengths[rank];
        if (rc < 0)
            (void)sti_error_set(err, rc, "rank %u tells wrongly what its SSDs have", rank);
    }

out:
    sti_mem_free(lists);
    sti_mem_free(all);
    return rc;
}
