/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyed order. The network works on the least power of two that holds n: each round
 * changes one half by a hash of the other, which undoes itself, so any hash gives a
 * bijection. What lands at or beyond n is sent through again until it comes down below n;
 * since the network is a bijection such a walk stays on one cycle, which holds an element
 * below n: the one it began at.
 *
 * Twelve rounds, because small sets have halves of a bit or two, where each round does
 * little (tests/test_order_keyed.c looks at every permutation of four). The results are
 * part of what a saved position means: nothing here may change without a new order kind.
 *
 * Invariant: sti_keyed_find(sti_keyed_at(p)) = p for every p below n. Values only; any
 * thread.
 */
#include "order/keyed.h"

#include "order/mix.h"

/* What a round adds to a half: the top of a product, which depends on every bit of the
 * other. */
static inline uint64_t
hash(uint64_t half, uint64_t key, uint32_t n_bits)
{
    uint64_t word = (half ^ key) * STI_MIX_INCREMENT;

    word = (word ^ word >> 32) * UINT64_C(0xd6e8feb86659fd93);
    /* Two shifts, since n_bits may be 0 and a shift by 64 has no meaning. */
    return word >> 1 >> (63 - n_bits);
}

void
sti_keyed_init(struct sti_keyed *keyed, uint64_t n, uint64_t seed, uint64_t epoch)
{
    uint32_t n_bits = n > 1 ? 64 - (uint32_t)__builtin_clzll(n - 1) : 0;
    uint64_t state = sti_mix(seed + STI_MIX_INCREMENT) + epoch;

    keyed->n = n;
    keyed->left_bits = n_bits - n_bits / 2;
    keyed->right_bits = n_bits / 2;
    state = sti_mix(state);
    for (uint32_t i = 0; i < STI_KEYED_ROUNDS; i++) {
        state += STI_MIX_INCREMENT;
        keyed->keys[i] = sti_mix(state);
    }
}

uint64_t
sti_keyed_at(const struct sti_keyed *keyed, uint64_t position)
{
    uint64_t at = position;

    do {
        uint64_t left = at >> keyed->right_bits;
        uint64_t right = at & ((UINT64_C(1) << keyed->right_bits) - 1);

        for (uint32_t i = 0; i < STI_KEYED_ROUNDS; i += 2) {
            left ^= hash(right, keyed->keys[i], keyed->left_bits);
            right ^= hash(left, keyed->keys[i + 1], keyed->right_bits);
        }
        at = left << keyed->right_bits | right;
    } while (at >= keyed->n);
    return at;
}

uint64_t
sti_keyed_find(const struct sti_keyed *keyed, uint64_t element)
{
    uint64_t at = element;

    do {
        uint64_t left = at >> keyed->right_bits;
        uint64_t right = at & ((UINT64_C(1) << keyed->right_bits) - 1);

        for (uint32_t i = STI_KEYED_ROUNDS; i > 0; i -= 2) {
            right ^= hash(left, keyed->keys[i - 1], keyed->right_bits);
            left ^= hash(right, keyed->keys[i - 2], keyed->left_bits);
        }
        at = left << keyed->right_bits | right;
    } while (at >= keyed->n);
    return at;
}
