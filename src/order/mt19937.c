/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MT19937, a block of 624 words at a time.
 *
 * The generator's step is linear over GF(2) and its characteristic polynomial phi has
 * degree 19937, so K steps are x^K mod phi, a polynomial of at most 19937 coefficients:
 * the state after K steps is the sum of the states after those i steps whose coefficient
 * is 1 (Haramoto et al., "Efficient Jump Ahead for F2-Linear Random Number Generators",
 * INFORMS J. Computing 20(3), 2008). phi is sparse, so reducing a square is cheap, and a
 * state is a window of the sequence of words, so the sum is taken over one array.
 *
 * Invariant: the words of a block are 624 consecutive words of the linear sequence;
 * outputs are tempered copies of them. Values only; any thread.
 */
#include "order/mt19937.h"

#include <string.h>

#define N STI_MT19937_WORDS
#define M 397
#define MATRIX UINT32_C(0x9908b0df)
#define UPPER UINT32_C(0x80000000)

/* Up to this a jump walks: making 2^22 outputs takes about as long as the polynomial
 * does. */
#define WALK_MAX (UINT64_C(1) << 22)

#define DEGREE 19937
#define POLY_WORDS 312 /* 64-bit words of a polynomial of degree <= DEGREE */
#define PHI_TERMS_MAX 256

/* The word that follows N words of the sequence: a, b are the first two, m the M-th. */
static inline uint32_t
step(uint32_t a, uint32_t b, uint32_t m)
{
    uint32_t mixed = (a & UPPER) | (b & ~UPPER);

    return m ^ (mixed >> 1) ^ (MATRIX & (0U - (b & 1)));
}

static inline uint32_t
temper(uint32_t word)
{
    word ^= word >> 11;
    word ^= (word << 7) & UINT32_C(0x9d2c5680);
    word ^= (word << 15) & UINT32_C(0xefc60000);
    return word ^ (word >> 18);
}

static void
refill(struct sti_mt19937 *engine)
{
    uint32_t *words = engine->words;
    uint32_t i = 0;

    for (; i < N - M; i++)
        words[i] = step(words[i], words[i + 1], words[i + M]);
    for (; i < N - 1; i++)
        words[i] = step(words[i], words[i + 1], words[i + M - N]);
    words[N - 1] = step(words[N - 1], words[0], words[M - 1]);
    engine->next_idx = 0;
}

void
sti_mt19937_seed(struct sti_mt19937 *engine, uint64_t seed)
{
    uint32_t word = (uint32_t)seed;

    engine->words[0] = word;
    for (uint32_t i = 1; i < N; i++) {
        word = UINT32_C(1812433253) * (word ^ (word >> 30)) + i;
        engine->words[i] = word;
    }
    engine->next_idx = N;
}

uint32_t
sti_mt19937_u32(struct sti_mt19937 *engine)
{
    if (engine->next_idx == N)
        refill(engine);
    return temper(engine->words[engine->next_idx++]);
}

uint64_t
sti_mt19937_u64(struct sti_mt19937 *engine)
{
    uint64_t upper = sti_mt19937_u32(engine);

    return upper << 32 | sti_mt19937_u32(engine);
}

uint32_t
sti_mt19937_block(struct sti_mt19937 *engine, uint32_t *out, uint64_t max)
{
    if (engine->next_idx == N)
        refill(engine);
    uint32_t count = N - engine->next_idx;
    if (count > max)
        count = (uint32_t)max;
    const uint32_t *words = engine->words + engine->next_idx;
    for (uint32_t i = 0; i < count; i++)
        out[i] = temper(words[i]);
    engine->next_idx += count;
    return count;
}

/* The jump: its working memory, laid over the caller's scratch. */
struct jump {
    uint64_t power[POLY_WORDS];          /* x^K mod phi */
    uint64_t square[2 * POLY_WORDS + 1]; /* room for a square and one shift */
    uint32_t sequence[DEGREE + N];
    uint32_t sum[N];
    uint32_t terms[PHI_TERMS_MAX]; /* exponents of phi below DEGREE */
    uint32_t n_terms;
};

_Static_assert(sizeof(struct jump) <= STI_MT19937_JUMP_BYTES, "the promised scratch holds a jump");

/* dst ^= src << shift, both of POLY_WORDS; what is shifted out is known to be zero. */
static void
poly_add_shifted(uint64_t *dst, const uint64_t *src, uint32_t shift)
{
    uint32_t n_words = shift / 64;
    uint32_t n_bits = shift % 64;

    for (uint32_t i = n_words; i < POLY_WORDS; i++) {
        dst[i] ^= src[i - n_words] << n_bits;
        if (n_bits && i > n_words)
            dst[i] ^= src[i - n_words - 1] >> (64 - n_bits);
    }
}

/* p = p * (x^hi + x^lo), in q's memory on the way. */
static void
poly_mul_binomial(uint64_t *p, uint64_t *q, uint32_t hi, uint32_t lo)
{
    memset(q, 0, POLY_WORDS * sizeof(*q));
    poly_add_shifted(q, p, hi);
    poly_add_shifted(q, p, lo);
    memcpy(p, q, POLY_WORDS * sizeof(*q));
}

/*
 * phi, from the recurrence itself (appendix A of the 1998 paper). With u = x^623 + x^396,
 * v = x^624 + x^397 and the bits a_i of MATRIX:
 * phi = v * (u^31 + sum over i < 31 of a_i u^(30 - i)) + a_31, here by Horner's rule.
 */
static void
make_phi(struct jump *jump)
{
    uint64_t *p = jump->power;

    memset(p, 0, sizeof(jump->power));
    p[0] = 1;
    for (uint32_t i = 0; i < 31; i++) {
        poly_mul_binomial(p, jump->square, N - 1, M - 1);
        p[0] ^= MATRIX >> i & 1;
    }
    poly_mul_binomial(p, jump->square, N, M);
    p[0] ^= MATRIX >> 31;
    jump->n_terms = 0;
    for (uint32_t i = 0; i < DEGREE; i++)
        if (p[i / 64] >> (i % 64) & 1)
            jump->terms[jump->n_terms++] = i;
}

/*
 * square mod phi. A word of coefficients at and above DEGREE is folded down at once, from
 * the top: phi's second highest term is 227 below its highest, so no fold reaches its own
 * word.
 */
static void
reduce(struct jump *jump)
{
    uint64_t *square = jump->square;

    for (uint32_t low = 2 * POLY_WORDS * 64 - 64;; low -= 64) {
        uint64_t word = square[low / 64];
        uint32_t base = 0;

        if (low < DEGREE) { /* the last one, which keeps its lower part */
            word >>= DEGREE - low;
            square[low / 64] &= (UINT64_C(1) << (DEGREE - low)) - 1;
        } else {
            base = low - DEGREE;
            square[low / 64] = 0;
        }
        for (uint32_t i = 0; word && i < jump->n_terms; i++) {
            uint32_t at = base + jump->terms[i];
            uint32_t n_bits = at % 64;

            square[at / 64] ^= word << n_bits;
            if (n_bits)
                square[at / 64 + 1] ^= word >> (64 - n_bits);
        }
        if (low < DEGREE)
            break;
    }
}

/* The lower 32 bits of word with a zero between every two of them. */
static uint64_t
spread(uint64_t word)
{
    word &= UINT32_MAX;
    word = (word | word << 16) & UINT64_C(0x0000ffff0000ffff);
    word = (word | word << 8) & UINT64_C(0x00ff00ff00ff00ff);
    word = (word | word << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    word = (word | word << 2) & UINT64_C(0x3333333333333333);
    return (word | word << 1) & UINT64_C(0x5555555555555555);
}

/* power = x^count mod phi, by squaring, from the highest bit of count. */
static void
make_power(struct jump *jump, sti_u128 count)
{
    uint32_t bit = 127;

    make_phi(jump);
    memset(jump->power, 0, sizeof(jump->power));
    jump->power[0] = 1;
    while (!(count >> bit & 1))
        bit--;
    for (uint32_t done = 0; done <= bit; done++) {
        uint64_t odd = (uint64_t)(count >> (bit - done) & 1);

        memset(jump->square, 0, sizeof(jump->square));
        for (uint32_t i = 0; i < POLY_WORDS; i++) {
            /* Squaring over GF(2) is spreading; times x is one bit more. */
            jump->square[2 * i] = spread(jump->power[i]) << odd;
            jump->square[2 * i + 1] = spread(jump->power[i] >> 32) << odd;
        }
        reduce(jump);
        memcpy(jump->power, jump->square, sizeof(jump->power));
    }
}

/*
 * Moves the block by count words; next_idx stays. The lower 31 bits of a block's first
 * word are no part of the state and may come out wrong where they were a seed's; no step
 * reads them and no output is made of them, for next_idx is never 0 between two calls.
 */
static void
leap(struct sti_mt19937 *engine, sti_u128 count, struct jump *jump)
{
    uint32_t *sequence = jump->sequence;

    make_power(jump, count);
    memcpy(sequence, engine->words, sizeof(engine->words));
    for (uint32_t i = N; i < DEGREE + N; i++)
        sequence[i] = step(sequence[i - N], sequence[i - N + 1], sequence[i - N + M]);
    memset(jump->sum, 0, sizeof(jump->sum));
    for (uint32_t i = 0; i < DEGREE; i++)
        if (jump->power[i / 64] >> (i % 64) & 1)
            for (uint32_t j = 0; j < N; j++)
                jump->sum[j] ^= sequence[i + j];
    memcpy(engine->words, jump->sum, sizeof(jump->sum));
}

void
sti_mt19937_jump(struct sti_mt19937 *engine, sti_u128 count, void *scratch)
{
    uint32_t left = N - engine->next_idx;

    if (count > WALK_MAX) {
        leap(engine, count, scratch);
        return;
    }
    while (count > left) {
        count -= left;
        refill(engine);
        left = N;
    }
    engine->next_idx += (uint32_t)count;
}
