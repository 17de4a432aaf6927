/* SPDX-License-Identifier: Apache-2.0 */
/* The evictor against sorted lists: farthest next use first, unknown before all, least
 * recently used first. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tier/evictor.h"

#define SPAN 700
#define SAMPLES 300

static uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The positions in it, of which all lie within one span below the newest. */
struct window {
    char has[SPAN];
    uint64_t base;
    uint64_t n;
};

static uint64_t
farthest(const struct window *window)
{
    for (uint64_t at = SPAN; at > 0; at--)
        if (window->has[at - 1])
            return window->base + at - 1;
    return UINT64_MAX;
}

/* The window moves on: what falls out of it is removed first. */
static void
move_on(struct sti_evictor *evictor, struct window *window, uint64_t by)
{
    for (uint64_t at = 0; at < by; at++)
        if (window->has[at]) {
            sti_evictor_remove_position(evictor, window->base + at);
            window->n--;
        }
    memmove(window->has, window->has + by, SPAN - by);
    memset(window->has + SPAN - by, 0, by);
    window->base += by;
}

static void
the_farthest_next_use_goes_first(void **state)
{
    static const uint64_t bases[] = {0, 650, 12345, (UINT64_C(1) << 32) - 1000};
    struct sti_evictor *evictor;
    uint64_t value, seed = 1;

    (void)state;
    for (size_t at = 0; at < sizeof(bases) / sizeof(bases[0]); at++) {
        struct window window = {.base = bases[at]};

        assert_int_equal(sti_evictor_new(&evictor, STK_POLICY_NEXT_USE, SAMPLES, SPAN, true), 0);
        for (int round = 0; round < 20000; round++) {
            uint64_t offset = draw(&seed) % SPAN;

            if (draw(&seed) % 3 > 0 && !window.has[offset]) {
                sti_evictor_add_position(evictor, window.base + offset, STI_CLASS_WORTHY);
                window.has[offset] = 1;
                window.n++;
            } else if (window.n > 0) {
                uint64_t wanted = farthest(&window);

                assert_int_equal(sti_evictor_take(evictor, window.base + SPAN - 1, &value),
                                 STI_VICTIM_POSITION);
                assert_int_equal(value, wanted);
                window.has[wanted - window.base] = 0;
                window.n--;
            }
            if (round % 50 == 0)
                move_on(evictor, &window, draw(&seed) % 90);
        }
        sti_evictor_clear_positions(evictor);
        assert_int_equal(sti_evictor_take(evictor, window.base + SPAN - 1, &value),
                         STI_VICTIM_NONE);
        sti_evictor_free(evictor);
    }
}

/* What the SSD has, too, goes first, then the light, then the worthy; the unknown of the
 * latter two before the known, each by next use, and a sample leaves whatever its class
 * was. */
static void
classes_go_one_after_the_other(void **state)
{
    static const uint64_t expected[] = {30, 20, 8, 95, 12, 7, 90, 40};
    struct sti_evictor *evictor;
    uint64_t value;

    (void)state;
    assert_int_equal(sti_evictor_new(&evictor, STK_POLICY_NEXT_USE, SAMPLES, SPAN, true), 0);
    sti_evictor_add_position(evictor, 90, STI_CLASS_WORTHY);
    sti_evictor_add_position(evictor, 40, STI_CLASS_WORTHY);
    sti_evictor_add_position(evictor, 20, STI_CLASS_STORED);
    sti_evictor_add_position(evictor, 30, STI_CLASS_STORED);
    sti_evictor_add_position(evictor, 12, STI_CLASS_LIGHT);
    sti_evictor_add_position(evictor, 95, STI_CLASS_LIGHT);
    sti_evictor_add_position(evictor, 80, STI_CLASS_LIGHT);
    sti_evictor_add_position(evictor, 81, STI_CLASS_STORED);
    sti_evictor_add_unknown(evictor, 7, STI_CLASS_WORTHY);
    sti_evictor_add_unknown(evictor, 8, STI_CLASS_LIGHT);
    sti_evictor_add_unknown(evictor, 9, STI_CLASS_STORED);
    sti_evictor_remove_unknown(evictor, 9);
    sti_evictor_remove_position(evictor, 80);
    sti_evictor_remove_position(evictor, 81);
    for (size_t at = 0; at < sizeof(expected) / sizeof(expected[0]); at++) {
        assert_int_equal(sti_evictor_take(evictor, 99, &value),
                         at == 2 || at == 5 ? STI_VICTIM_SAMPLE : STI_VICTIM_POSITION);
        assert_int_equal(value, expected[at]);
    }
    assert_int_equal(sti_evictor_take(evictor, 99, &value), STI_VICTIM_NONE);
    sti_evictor_free(evictor);
}

static void
what_is_not_known_goes_before(void **state)
{
    struct sti_evictor *evictor;
    uint64_t value;

    (void)state;
    assert_int_equal(sti_evictor_new(&evictor, STK_POLICY_NEXT_USE, SAMPLES, SPAN, true), 0);
    sti_evictor_add_position(evictor, 90, STI_CLASS_WORTHY);
    sti_evictor_add_unknown(evictor, 40, STI_CLASS_WORTHY);
    sti_evictor_add_unknown(evictor, 12, STI_CLASS_WORTHY);
    sti_evictor_add_unknown(evictor, 77, STI_CLASS_WORTHY);
    sti_evictor_remove_unknown(evictor, 12);
    assert_int_equal(sti_evictor_take(evictor, 100, &value), STI_VICTIM_SAMPLE);
    assert_int_equal(value, 40);
    assert_int_equal(sti_evictor_take(evictor, 100, &value), STI_VICTIM_SAMPLE);
    assert_int_equal(value, 77);
    assert_int_equal(sti_evictor_take(evictor, 100, &value), STI_VICTIM_POSITION);
    assert_int_equal(value, 90);
    assert_int_equal(sti_evictor_take(evictor, 100, &value), STI_VICTIM_NONE);
    sti_evictor_free(evictor);
}

static void
the_least_recently_used_goes_first(void **state)
{
    uint64_t times[SAMPLES] = {0}; /* when a sample entered; 0: not in */
    struct sti_evictor *evictor;
    uint64_t value, seed = 9, n = 0;

    (void)state;
    assert_int_equal(sti_evictor_new(&evictor, STK_POLICY_LRU, SAMPLES, 0, true), 0);
    for (uint64_t now = 1; now < 20000; now++) {
        uint64_t sample = draw(&seed) % SAMPLES, oldest = UINT64_MAX;

        if (draw(&seed) % 4 == 0 && n > 0) {
            for (uint64_t at = 0; at < SAMPLES; at++)
                if (times[at] && (oldest == UINT64_MAX || times[at] < times[oldest]))
                    oldest = at;
            assert_int_equal(sti_evictor_take(evictor, 0, &value), STI_VICTIM_SAMPLE);
            assert_int_equal(value, oldest);
            times[oldest] = 0;
            n--;
        } else if (times[sample]) {
            sti_evictor_remove_recent(evictor, sample);
            times[sample] = 0;
            n--;
        } else {
            sti_evictor_add_recent(evictor, sample);
            times[sample] = now;
            n++;
        }
    }
    while (n-- > 0)
        assert_int_equal(sti_evictor_take(evictor, 0, &value), STI_VICTIM_SAMPLE);
    assert_int_equal(sti_evictor_take(evictor, 0, &value), STI_VICTIM_NONE);
    sti_evictor_free(evictor);
}

/* Looking shows what taking would take, and takes nothing. */
static void
looking_shows_who_is_next(void **state)
{
    uint64_t seed = 11, values[8], value;
    struct sti_evictor *evictor;

    (void)state;
    assert_int_equal(sti_evictor_new(&evictor, STK_POLICY_NEXT_USE, SAMPLES, SPAN, false), 0);
    for (int round = 0; round < 500; round++) {
        uint64_t newest = SPAN * 3 + draw(&seed) % SPAN, n = 1 + draw(&seed) % 12;
        uint32_t n_seen = 0;
        uint64_t n_alike = 0;

        for (uint64_t at = 0; at < n; at++) /* some twice: then they are there but once */
            sti_evictor_add_position(evictor, newest - draw(&seed) % (SPAN / 2), STI_CLASS_WORTHY);
        assert_int_equal(sti_evictor_look(evictor, newest, values, 8, &n_seen, &n_alike),
                         STI_VICTIM_POSITION);
        assert_int_equal(n_seen, n_alike < 8 ? n_alike : 8);
        assert_true(n_alike >= 1 && n_alike <= n);
        for (uint32_t at = 0; at < n_seen; at++) {
            assert_int_equal(sti_evictor_take(evictor, newest, &value), STI_VICTIM_POSITION);
            assert_int_equal(value, values[at]);
        }
        sti_evictor_clear_positions(evictor);
        assert_int_equal(sti_evictor_look(evictor, newest, values, 8, &n_seen, &n_alike),
                         STI_VICTIM_NONE);
    }
    for (uint64_t sample = 1; sample < 9; sample++)
        sti_evictor_add_unknown(evictor, sample, STI_CLASS_WORTHY);
    uint32_t n_seen = 0;
    uint64_t n_alike = 0;
    assert_int_equal(sti_evictor_look(evictor, 7, values, 4, &n_seen, &n_alike), STI_VICTIM_SAMPLE);
    assert_int_equal(n_alike, 8);
    assert_int_equal(n_seen, 4);
    for (uint32_t at = 0; at < 4; at++)
        assert_int_equal(values[at], at + 1);
    sti_evictor_free(evictor);
}

static void
others_have_no_victims(void **state)
{
    struct sti_evictor *evictor;
    uint64_t value;

    (void)state;
    for (int policy = STK_POLICY_NONE; policy <= STK_POLICY_PIN; policy++) {
        assert_int_equal(sti_evictor_new(&evictor, (stk_policy)policy, SAMPLES, SPAN, true), 0);
        assert_int_equal(sti_evictor_take(evictor, 10, &value), STI_VICTIM_NONE);
        sti_evictor_clear_positions(evictor);
        sti_evictor_free(evictor);
    }
    sti_evictor_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_farthest_next_use_goes_first),
        cmocka_unit_test(classes_go_one_after_the_other),
        cmocka_unit_test(what_is_not_known_goes_before),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(looking_shows_who_is_next),
        cmocka_unit_test(others_have_no_victims),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
