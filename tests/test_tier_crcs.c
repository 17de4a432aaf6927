/* SPDX-License-Identifier: Apache-2.0 */
/* CRCs are found again, others are not, and a full table keeps what it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tier/crcs.h"

static uint32_t
crc_of(uint64_t sample)
{
    return (uint32_t)(sample * UINT64_C(2654435761) >> 7);
}

static void
what_was_noted_is_found(void **state)
{
    enum { N = 5000 };
    struct sti_crcs crcs;
    uint32_t crc;

    (void)state;
    for (uint64_t stride = 1; stride < 1 << 20; stride = stride * 31 + 1) {
        assert_int_equal(sti_crcs_init(&crcs, N), 0);
        for (uint64_t at = 0; at < N; at++) {
            assert_false(sti_crcs_find(&crcs, at * stride % UINT32_MAX, &crc));
            sti_crcs_note(&crcs, at * stride % UINT32_MAX, crc_of(at));
        }
        for (uint64_t at = 0; at < N; at++) {
            assert_true(sti_crcs_find(&crcs, at * stride % UINT32_MAX, &crc));
            assert_int_equal(crc, crc_of(at));
        }
        sti_crcs_fini(&crcs);
    }
}

static void
a_full_table_keeps_what_it_has(void **state)
{
    struct sti_crcs crcs;
    uint32_t crc, n_found = 0;

    (void)state;
    assert_int_equal(sti_crcs_init(&crcs, 0), 0);
    for (uint64_t sample = 0; sample < 1000; sample++)
        sti_crcs_note(&crcs, sample, crc_of(sample));
    sti_crcs_note(&crcs, 0, 1); /* the first stays */
    for (uint64_t sample = 0; sample < 1000; sample++) {
        if (!sti_crcs_find(&crcs, sample, &crc))
            continue;
        assert_int_equal(crc, crc_of(sample));
        n_found++;
    }
    assert_true(n_found > 0 && n_found < 64);
    sti_crcs_fini(&crcs);
    sti_crcs_fini(&crcs);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_noted_is_found),
        cmocka_unit_test(a_full_table_keeps_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
