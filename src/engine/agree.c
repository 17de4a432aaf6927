/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/agree.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"

#define FACTS_MAX (STI_COMM_SHARE_MAX / 8)

static int
about(uint32_t rank, int code, stk_error *err)
{
    if (err)
        err->rank = (int)rank;
    return code;
}

/* What a rank cannot is understood only of the same version. */
static int
find_code(const struct sti_agreement *agreement, const uint64_t *mine, const uint64_t *all,
          uint32_t world, stk_error *err)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const uint64_t *facts = all + (size_t)rank * agreement->n;
        int code = (int)(int64_t)facts[agreement->n_alike];

        if (facts[0] != mine[0] || code == 0)
            continue;
        (void)sti_error_set(err, -ECANCELED, "rank %" PRIu32 " cannot %s: %s", rank,
                            agreement->doing, sti_error_text(code));
        return about(rank, -ECANCELED, err);
    }
    return 0;
}

static int
find_difference(const struct sti_agreement *agreement, const uint64_t *all, uint32_t world,
                stk_error *err)
{
    for (uint32_t fact = 0; fact < agreement->n_alike; fact++)
        for (uint32_t rank = 1; rank < world; rank++) {
            uint64_t value = all[(size_t)rank * agreement->n + fact];

            if (value == all[fact])
                continue;
            (void)sti_error_set(err, STK_E_MISMATCH,
                                "%s differ: rank 0 has %s %" PRIu64 ", rank %" PRIu32
                                " has %" PRIu64,
                                agreement->things, agreement->names[fact], all[fact], rank, value);
            return about(rank, STK_E_MISMATCH, err);
        }
    return 0;
}

int
sti_agree(struct sti_peers *peers, const struct sti_agreement *agreement, const uint64_t *mine,
          uint64_t *all, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(peers));
    int code = (int)(int64_t)mine[agreement->n_alike];
    uint64_t told[FACTS_MAX];
    stk_error unused;

    assert(agreement->n <= FACTS_MAX && agreement->n_alike < agreement->n);
    for (uint32_t at = 0; at < agreement->n; at++)
        told[at] = htole64(mine[at]);
    /* Why this rank cannot is more than that the others do not come either. */
    int rc = sti_peers_gather(peers, told, agreement->n * (uint32_t)sizeof(told[0]), all,
                              code < 0 ? &unused : err);
    if (code < 0)
        return code;
    for (size_t at = 0; rc == 0 && at < (size_t)world * agreement->n; at++)
        all[at] = le64toh(all[at]);
    if (rc == 0)
        rc = find_code(agreement, mine, all, world, err);
    return rc == 0 ? find_difference(agreement, all, world, err) : rc;
}
