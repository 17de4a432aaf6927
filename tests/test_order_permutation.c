/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.randperm: vectors made with PyTorch 2.6 (digests are of the ids as little-endian
 * 64-bit integers), and every variant against the few lines that define it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "order/permutation.h"

struct vector {
    uint64_t n;
    uint64_t seed;
    uint64_t first[5];
    uint64_t last[3];
    const char *digest; /* the first 32 digits */
};

static const struct vector vectors[] = {
    {1000, 0, {44, 37, 675, 775, 947}, {745, 263, 354}, "cee4a88ef6120e8eb96614e255d8cb01"},
    {1281167,
     0,
     {1069931, 571398, 762430, 399643, 899707},
     {615438, 152445, 922209},
     "bbf70b62862c7ae6fac74033870a4e18"},
    {1281167,
     7,
     {1044030, 165401, 760413, 410973, 924840},
     {1110107, 1190269, 242772},
     "daaab75216809e80399f1bb4176aa6ca"},
};

/* The first n from which torch >= 2.6 shuffles inside out; some 900 MB and ten
 * seconds. */
static const struct vector wide_vector = {
    214748364,
    11,
    {189915727, 188338941, 57361543, 6609080, 32561024},
    {179896496, 97339646, 65490602},
    "d7c91d811ec491663b3bb4983a810e82",
};

static void
check_vector(const struct vector *vector)
{
    struct sti_permutation permutation = sti_permutation_of(vector->n, false);
    uint32_t *ids = calloc(vector->n, sizeof(*ids));
    unsigned char digest[SHA256_DIGEST_SIZE];
    char hex[2 * SHA256_DIGEST_SIZE + 1];
    struct sti_mt19937 engine;
    struct sha256_ctx sha;

    assert_non_null(ids);
    sti_mt19937_seed(&engine, vector->seed);
    sti_permutation_write(&engine, &permutation, ids);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(ids[i], vector->first[i]);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(ids[vector->n - 3 + i], vector->last[i]);
    sha256_init(&sha);
    for (uint64_t i = 0; i < vector->n; i++) {
        uint64_t id = ids[i];

        sha256_update(&sha, sizeof(id), (const uint8_t *)&id);
    }
    sha256_digest(&sha, sizeof(digest), digest);
    for (uint32_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    hex[strlen(vector->digest)] = '\0';
    assert_string_equal(hex, vector->digest);
    free(ids);
}

static void
test_vectors(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        check_vector(&vectors[i]);
}

static void
test_wide_vector(void **state)
{
    (void)state;
    if (!getenv("STOKER_TEST_LONG")) /* NOLINT(concurrency-mt-unsafe): one thread */
        skip();
    check_vector(&wide_vector);
}

static void
test_ten(void **state)
{
    static const uint32_t expected[][10] = {{4, 1, 7, 5, 3, 9, 0, 8, 6, 2},
                                            {5, 6, 1, 2, 0, 8, 9, 3, 7, 4},
                                            {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}};
    static const uint64_t seeds[] = {0, 1, 42};
    struct sti_permutation permutation = sti_permutation_of(10, false);

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct sti_mt19937 engine;
        uint32_t ids[10];

        sti_mt19937_seed(&engine, seeds[i]);
        sti_permutation_write(&engine, &permutation, ids);
        assert_memory_equal(ids, expected[i], sizeof(ids));
    }
}

static void
swap(uint64_t *ids, uint64_t a, uint64_t b)
{
    uint64_t id = ids[a];

    ids[a] = ids[b];
    ids[b] = id;
}

/* The definition, a draw at a time. */
static void
write_plainly(struct sti_mt19937 *engine, uint64_t n, bool wide_draws, uint64_t *ids)
{
    for (uint64_t i = 0; i < n; i++)
        ids[i] = i;
    for (uint64_t i = 0; i < n && wide_draws; i++)
        swap(ids, i, sti_mt19937_u64(engine) % (i + 1));
    for (uint64_t i = 0; i + 1 < n && !wide_draws; i++)
        swap(ids, i, i + sti_mt19937_u32(engine) % (n - i));
}

/* All four variants, and where each leaves the engine. */
static void
check_variants(uint64_t n)
{
    uint64_t *expected = calloc(n, sizeof(*expected));
    uint64_t *got = calloc(n, sizeof(*got));
    bool *seen = calloc(n, sizeof(*seen));

    assert_true(expected && got && seen);
    for (uint32_t variant = 0; variant < 4; variant++) {
        struct sti_permutation permutation = {n, variant & 1, variant & 2};
        struct sti_mt19937 plain;
        struct sti_mt19937 engine;

        sti_mt19937_seed(&plain, n);
        engine = plain;
        write_plainly(&plain, n, permutation.wide_draws, expected);
        sti_permutation_write(&engine, &permutation, got);
        memset(seen, 0, n * sizeof(*seen));
        for (uint64_t i = 0; i < n; i++) {
            uint64_t id = permutation.wide_ids ? got[i] : ((uint32_t *)got)[i];

            assert_true(id == expected[i]);
            assert_false(seen[id]);
            seen[id] = true;
        }
        assert_int_equal(sti_mt19937_u32(&plain), sti_mt19937_u32(&engine));
        sti_mt19937_seed(&plain, n);
        for (uint64_t i = 0; i < sti_permutation_draws(&permutation); i++)
            (void)sti_mt19937_u32(&plain);
        (void)sti_mt19937_u32(&plain);
        assert_int_equal(sti_mt19937_u32(&plain), sti_mt19937_u32(&engine));
    }
    free(expected);
    free(got);
    free(seen);
}

static void
test_variants(void **state)
{
    static const uint64_t ns[] = {255, 256, 257, 258, 511, 512, 623, 624, 625, 626, 20011};

    (void)state;
    for (uint64_t n = 1; n < 40; n++)
        check_variants(n);
    for (uint32_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
        check_variants(ns[i]);
}

static void
test_limits(void **state)
{
    (void)state;
    assert_false(sti_permutation_of(214748363, false).wide_draws);
    assert_true(sti_permutation_of(214748364, false).wide_draws);
    assert_false(sti_permutation_of(214748364, true).wide_draws);
    assert_false(sti_permutation_of(UINT32_MAX, false).wide_ids);
    assert_true(sti_permutation_of(UINT64_C(1) << 32, false).wide_ids);
    assert_int_equal(sti_randint_draws((1 << 28) - 1, false), 1);
    assert_int_equal(sti_randint_draws(1 << 28, false), 2);
    assert_int_equal(sti_randint_draws(UINT32_MAX, true), 1);
    assert_int_equal(sti_randint_draws(UINT64_C(1) << 32, true), 2);
}

static void
test_randint(void **state)
{
    static const uint64_t ns[] = {1, 7, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 40};

    (void)state;
    for (uint32_t k = 0; k < 10; k++) {
        uint64_t n = ns[k / 2];
        uint32_t draws = k % 2 + 1;
        uint64_t ids[50];
        struct sti_mt19937 plain;
        struct sti_mt19937 engine;

        sti_mt19937_seed(&plain, k);
        engine = plain;
        sti_randint_write(&engine, n, draws, 50, ids);
        for (uint32_t i = 0; i < 50; i++) {
            uint64_t id = n > UINT32_MAX ? ids[i] : ((uint32_t *)ids)[i];
            uint64_t draw = draws == 2 ? sti_mt19937_u64(&plain) : sti_mt19937_u32(&plain);

            assert_true(id == draw % n);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_wide_vector),
        cmocka_unit_test(test_ten),     cmocka_unit_test(test_variants),
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_randint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
