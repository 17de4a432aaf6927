/* SPDX-License-Identifier: Apache-2.0 */
/* What each policy keeps: the whole table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/place.h"

static void
each_policy_keeps_its_own(void **state)
{
    static const struct {
        stk_policy policy;
        enum sti_next_use use;
        uint64_t n_bytes;
        uint64_t room;
        enum sti_keep keep;
    } cases[] = {
        {STK_POLICY_NONE, STI_NEXT_USE_KNOWN, 1, 100, STI_KEEP_NOT},
        {STK_POLICY_PIN, STI_NEXT_USE_NEVER, 100, 100, STI_KEEP_PINNED},
        {STK_POLICY_PIN, STI_NEXT_USE_KNOWN, 101, 100, STI_KEEP_NOT},
        {STK_POLICY_PIN, STI_NEXT_USE_KNOWN, 0, 0, STI_KEEP_PINNED},
        {STK_POLICY_LRU, STI_NEXT_USE_NEVER, 1, 0, STI_KEEP_BY_RECENT},
        {STK_POLICY_LRU, STI_NEXT_USE_KNOWN, 1, 0, STI_KEEP_BY_RECENT},
        {STK_POLICY_NEXT_USE, STI_NEXT_USE_KNOWN, 1, 0, STI_KEEP_BY_NEXT},
        {STK_POLICY_NEXT_USE, STI_NEXT_USE_UNKNOWN, 1, 0, STI_KEEP_UNKNOWN},
        {STK_POLICY_NEXT_USE, STI_NEXT_USE_NEVER, 1, 0, STI_KEEP_NOT},
    };

    (void)state;
    for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++)
        assert_int_equal(
            sti_place_keep(cases[at].policy, cases[at].use, cases[at].n_bytes, cases[at].room),
            cases[at].keep);
}

static void
the_default_depends_on_the_size_alone(void **state)
{
    (void)state;
    assert_int_equal(sti_place_resolve(STK_POLICY_DEFAULT, 1), STK_POLICY_NEXT_USE);
    assert_int_equal(sti_place_resolve(STK_POLICY_DEFAULT, UINT64_C(1) << 30), STK_POLICY_NEXT_USE);
    assert_int_equal(sti_place_resolve(STK_POLICY_DEFAULT, (UINT64_C(1) << 30) + 1),
                     STK_POLICY_PIN);
    for (uint32_t policy = STK_POLICY_NONE; policy <= STK_POLICY_NEXT_USE; policy++)
        assert_int_equal(sti_place_resolve(policy, UINT64_C(1) << 40), policy);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_keeps_its_own),
        cmocka_unit_test(the_default_depends_on_the_size_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
