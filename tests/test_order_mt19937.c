/* SPDX-License-Identifier: Apache-2.0 */
/* The generator against published outputs, and the jump against walking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "order/mt19937.h"

#define JUMP_WALKS_MAX (UINT64_C(1) << 22) /* longer ones are leapt */

static void
assert_same_sequence(struct sti_mt19937 *a, struct sti_mt19937 *b)
{
    for (uint32_t i = 0; i < 3 * STI_MT19937_WORDS; i++)
        assert_int_equal(sti_mt19937_u32(a), sti_mt19937_u32(b));
}

/* The standard names the 10,000th output of seed 5489 ([rand.predef] of C++). */
static void
test_known_outputs(void **state)
{
    struct sti_mt19937 engine;

    (void)state;
    sti_mt19937_seed(&engine, 5489);
    assert_int_equal(sti_mt19937_u32(&engine), UINT32_C(3499211612));
    for (uint32_t i = 1; i < 9999; i++)
        (void)sti_mt19937_u32(&engine);
    assert_int_equal(sti_mt19937_u32(&engine), UINT32_C(4123659995));
}

static void
test_seed_draw_of_torch(void **state)
{
    struct sti_mt19937 engine;

    (void)state;
    sti_mt19937_seed(&engine, 0);
    assert_true((sti_mt19937_u64(&engine) & (UINT64_MAX >> 1)) == UINT64_C(900450186894289455));
}

static void
test_seed_counts_modulo_32_bits(void **state)
{
    struct sti_mt19937 a;
    struct sti_mt19937 b;

    (void)state;
    sti_mt19937_seed(&a, (uint64_t)INT64_C(-1));
    sti_mt19937_seed(&b, UINT32_MAX);
    assert_same_sequence(&a, &b);
}

static void
test_blocks_are_the_sequence(void **state)
{
    struct sti_mt19937 a;
    struct sti_mt19937 b;
    uint32_t out[STI_MT19937_WORDS];

    (void)state;
    sti_mt19937_seed(&a, 3);
    sti_mt19937_seed(&b, 3);
    for (uint64_t max = 1; max < 2000; max += 37) {
        uint32_t count = sti_mt19937_block(&a, out, max < STI_MT19937_WORDS ? max : 624);

        assert_in_range(count, 1, max);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(out[i], sti_mt19937_u32(&b));
    }
}

static void
check_jump(uint32_t walked_first, uint64_t count)
{
    struct sti_mt19937 walker;
    struct sti_mt19937 jumper;
    void *scratch = malloc(STI_MT19937_JUMP_BYTES);

    assert_non_null(scratch);
    sti_mt19937_seed(&walker, walked_first + count);
    for (uint32_t i = 0; i < walked_first; i++)
        (void)sti_mt19937_u32(&walker);
    jumper = walker;
    for (uint64_t i = 0; i < count; i++)
        (void)sti_mt19937_u32(&walker);
    sti_mt19937_jump(&jumper, count, scratch);
    assert_same_sequence(&walker, &jumper);
    free(scratch);
}

static void
test_jump_is_walking(void **state)
{
    static const uint32_t before[] = {0, 1, 623, 624, 1000};
    static const uint64_t counts[] = {0,
                                      1,
                                      622,
                                      623,
                                      624,
                                      625,
                                      12345,
                                      JUMP_WALKS_MAX - 1,
                                      JUMP_WALKS_MAX,
                                      JUMP_WALKS_MAX + 1,
                                      JUMP_WALKS_MAX + 624,
                                      5000011};

    (void)state;
    for (uint32_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
        for (uint32_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            check_jump(before[i], counts[k]);
}

/* Far beyond walking: parts of a way add up to the way, whatever the parts. */
static void
test_jumps_add_up(void **state)
{
    const sti_u128 far = (sti_u128)UINT64_C(0x9e3779b97f4a7c15) << 49 | 12345;
    void *scratch = malloc(STI_MT19937_JUMP_BYTES);

    (void)state;
    assert_non_null(scratch);
    for (uint32_t i = 0; i < 8; i++) {
        struct sti_mt19937 once;
        struct sti_mt19937 twice;
        sti_u128 part = far / (i + 2) + i;

        sti_mt19937_seed(&once, i);
        sti_mt19937_seed(&twice, i);
        sti_mt19937_jump(&once, far, scratch);
        sti_mt19937_jump(&twice, part, scratch);
        sti_mt19937_jump(&twice, far - part, scratch);
        assert_same_sequence(&once, &twice);
    }
    free(scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_outputs),
        cmocka_unit_test(test_seed_draw_of_torch),
        cmocka_unit_test(test_seed_counts_modulo_32_bits),
        cmocka_unit_test(test_blocks_are_the_sequence),
        cmocka_unit_test(test_jump_is_walking),
        cmocka_unit_test(test_jumps_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
