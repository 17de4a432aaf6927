/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that open something together agree on it: each tells all what it has, everybody compares
 * everybody with rank 0, so all find the same disagreement, and who cannot says so instead of
 * letting the others wait for it.
 */
#ifndef STI_ENGINE_AGREE_H
#define STI_ENGINE_AGREE_H

#include <stdint.h>

#include "engine/peers.h"

/*
 * What is told: n facts, n times 8 at most STI_COMM_SHARE_MAX. The first n_alike must be the same
 * on all ranks; fact 0 is the version of what the others mean. Behind them, fact n_alike is a code:
 * 0, or why this rank cannot.
 *
 * names   of the facts that are alike, for messages
 * things  that differ: "the ranks' loaders"
 * doing   what a rank cannot: "open its loader"
 */
struct sti_agreement {
    const char *const *names;
    const char *things;
    const char *doing;
    uint32_t n_alike;
    uint32_t n;
};

/*
 * All ranks make the same call. mine: n facts; all: room for n of each rank. Blocks. Errors: this
 * rank's code (err is left), -ECANCELED another rank cannot, STK_E_MISMATCH (err names the fact,
 * the ranks and both values), those of sti_peers_gather(). err->rank: whom it is about. Any thread
 * but the loop's.
 */
int
sti_agree(struct sti_peers *peers, const struct sti_agreement *agreement, const uint64_t *mine,
          uint64_t *all, stk_error *err);

#endif
