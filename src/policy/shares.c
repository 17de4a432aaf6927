/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares. In each round what is left is divided by weight among the devices with room;
 * whoever is full drops out, so n rounds are enough. Rounding is given to the first with
 * room.
 */
#include "policy/shares.h"

static double
mean_weight(const struct sti_share *shares, uint32_t n)
{
    double sum = 0;
    uint32_t n_known = 0;

    for (uint32_t at = 0; at < n; at++) {
        if (shares[at].weight > 0) {
            sum += shares[at].weight;
            n_known++;
        }
    }
    return n_known > 0 ? sum / n_known : 1;
}

static uint64_t
room_left(const struct sti_share *share)
{
    return share->room_bytes - share->share_bytes;
}

static uint64_t
give(struct sti_share *share, uint64_t n_bytes)
{
    uint64_t room_bytes = room_left(share);
    uint64_t given_bytes = n_bytes < room_bytes ? n_bytes : room_bytes;

    share->share_bytes += given_bytes;
    return given_bytes;
}

void
sti_shares_divide(struct sti_share *shares, uint32_t n, uint64_t n_bytes)
{
    double mean = mean_weight(shares, n);

    for (uint32_t at = 0; at < n; at++)
        shares[at].share_bytes = 0;
    for (uint32_t round = 0; round < n && n_bytes > 0; round++) {
        uint64_t left_bytes = n_bytes;
        double sum = 0;

        for (uint32_t at = 0; at < n; at++)
            if (room_left(&shares[at]) > 0)
                sum += shares[at].weight > 0 ? shares[at].weight : mean;
        for (uint32_t at = 0; at < n && sum > 0; at++) {
            double weight = shares[at].weight > 0 ? shares[at].weight : mean;
            double part = (double)left_bytes * (weight / sum);
            uint64_t part_bytes = part < (double)n_bytes ? (uint64_t)part : n_bytes;

            if (room_left(&shares[at]) > 0)
                n_bytes -= give(&shares[at], part_bytes);
        }
    }
    for (uint32_t at = 0; at < n; at++)
        n_bytes -= give(&shares[at], n_bytes);
}

uint32_t
sti_shares_next(const struct sti_share *shares, const uint64_t *used_bytes, uint32_t n,
                uint64_t n_bytes)
{
    uint32_t best = UINT32_MAX;
    double least = 0;

    for (uint32_t at = 0; at < n; at++) {
        if (used_bytes[at] > shares[at].share_bytes ||
            n_bytes > shares[at].share_bytes - used_bytes[at])
            continue;
        double filled = (double)used_bytes[at] / (double)shares[at].share_bytes;
        if (best == UINT32_MAX || filled < least) {
            best = at;
            least = filled;
        }
    }
    return best;
}
