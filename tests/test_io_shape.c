/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated storage as arithmetic on virtual time: every rate and latency, exactly. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/shape.h"

#define START_NS (100 * STI_NS_PER_S)
#define BURST_NS UINT64_C(2000000)

static struct sti_shape *
must_parse(const char *text)
{
    struct sti_shape *shape = NULL;
    stk_error err = {0};

    if (sti_shape_new(&shape, text, &err) < 0)
        fail_msg("%s", err.message);
    return shape;
}

/* When the n-th of n operations is done that all arrive at START_NS. */
static uint64_t
last_of(struct sti_shape *shape, bool is_write, uint32_t n, uint64_t n_bytes)
{
    uint64_t due_ns = 0;

    for (uint32_t at = 0; at < n; at++)
        due_ns = sti_shape_charge(shape, is_write, n_bytes, START_NS);
    return due_ns;
}

static void
rates_are_exact(void **state)
{
    const struct {
        const char *text;
        bool is_write;
        uint32_t n;
        uint64_t n_bytes;
        uint64_t busy_ns; /* of the queue; it may start BURST_NS early */
    } cases[] = {
        {"rbps=40M", false, 1000, 40000, STI_NS_PER_S},
        {"rbps=40M", true, 1000, 40000, 0},
        {"wbps=1G", true, 10, 100000000, STI_NS_PER_S},
        {"bps=2M", true, 1, 1000000, STI_NS_PER_S / 2},
        {"riops=4000", false, 8000, 1 << 20, 2 * STI_NS_PER_S},
        {"wiops=250", true, 500, 0, 2 * STI_NS_PER_S},
        {"rbps=100M,riops=2000", false, 2000, 10, STI_NS_PER_S},
        {"rbps=100M riops=2000", false, 100, 10000000, 10 * STI_NS_PER_S},
        {"", false, 1000, 1 << 30, 0},
    };

    (void)state;
    for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
        struct sti_shape *shape = must_parse(cases[at].text);
        uint64_t due_ns = last_of(shape, cases[at].is_write, cases[at].n, cases[at].n_bytes);
        uint64_t want_ns = START_NS;

        if (cases[at].busy_ns > BURST_NS)
            want_ns += cases[at].busy_ns - BURST_NS;
        if (due_ns != want_ns)
            fail_msg("case %zu: %llu ns, not %llu", at, (unsigned long long)due_ns,
                     (unsigned long long)want_ns);
        sti_shape_free(shape);
    }
}

static void
latency_is_for_each_alone(void **state)
{
    struct sti_shape *shape = must_parse("rlat=500us wlat=2ms");

    (void)state;
    assert_int_equal(last_of(shape, false, 100, 1 << 20), START_NS + 500000);
    assert_int_equal(last_of(shape, true, 100, 1 << 20), START_NS + 2000000);
    sti_shape_free(shape);
    shape = must_parse("rbps=1M rlat=1ns");
    assert_int_equal(last_of(shape, false, 1, 1000000), START_NS + STI_NS_PER_S - BURST_NS);
    sti_shape_free(shape);
}

/* Both together share bps; each alone has its own. */
static void
reads_and_writes_share_what_is_shared(void **state)
{
    struct sti_shape *shape = must_parse("bps=1M");

    (void)state;
    (void)sti_shape_charge(shape, false, 500000, START_NS);
    assert_int_equal(sti_shape_charge(shape, true, 500000, START_NS),
                     START_NS + STI_NS_PER_S - BURST_NS);
    sti_shape_free(shape);
    shape = must_parse("rbps=1M wbps=1M");
    (void)sti_shape_charge(shape, false, 500000, START_NS);
    assert_int_equal(sti_shape_charge(shape, true, 500000, START_NS),
                     START_NS + STI_NS_PER_S / 2 - BURST_NS);
    sti_shape_free(shape);
}

/* A device that was idle does not save up more than the burst. */
static void
idle_time_is_lost(void **state)
{
    struct sti_shape *shape = must_parse("rbps=1M");

    (void)state;
    (void)sti_shape_charge(shape, false, 1000, START_NS);
    uint64_t later_ns = START_NS + 50 * STI_NS_PER_S;
    assert_int_equal(sti_shape_charge(shape, false, 1000000, later_ns),
                     later_ns + STI_NS_PER_S - BURST_NS);
    /* And in a busy one the line goes on where it was, whenever one joins it. */
    assert_int_equal(sti_shape_charge(shape, false, 1000000, later_ns + 12345),
                     later_ns + 2 * STI_NS_PER_S - BURST_NS);
    sti_shape_free(shape);
}

static void
due_is_never_before_arrival(void **state)
{
    struct sti_shape *shape = must_parse("rbps=40M wbps=30M bps=50M riops=4k wiops=3k rlat=1us");
    uint64_t now_ns = START_NS;

    (void)state;
    for (uint32_t at = 0; at < 10000; at++) {
        now_ns += at * 7919 % 300000;
        assert_true(sti_shape_charge(shape, at % 3 == 0, at * 104729 % 65536, now_ns) >= now_ns);
    }
    sti_shape_free(shape);
}

static void
rates_near_zero_are_far_away(void **state)
{
    struct sti_shape *shape = must_parse("rbps=0.000001");

    (void)state;
    uint64_t due_ns = sti_shape_charge(shape, false, 1 << 30, START_NS);
    assert_true(due_ns > 1000 * START_NS);
    assert_true(sti_shape_charge(shape, false, UINT64_MAX, START_NS) >= due_ns);
    sti_shape_free(shape);
}

static void
bad_texts_are_refused(void **state)
{
    const char *const bad[] = {"rbps",      "rbps=",     "rbps=x",    "rbps=0",    "rbps=-1",
                               "rbps=1T",   "rbps=1ms",  "rlat=5",    "rlat=5K",   "speed=4",
                               "rbps=1 xx", "riops=nan", "riops=inf", "rlat=1e99s"};

    (void)state;
    for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
        struct sti_shape *shape = NULL;
        stk_error err = {0};

        if (sti_shape_new(&shape, bad[at], &err) != -EINVAL)
            fail_msg("'%s' is taken", bad[at]);
        assert_null(shape);
        assert_true(strncmp(err.message, "shape: ", 7) == 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_exact),
        cmocka_unit_test(latency_is_for_each_alone),
        cmocka_unit_test(reads_and_writes_share_what_is_shared),
        cmocka_unit_test(idle_time_is_lost),
        cmocka_unit_test(due_is_never_before_arrival),
        cmocka_unit_test(rates_near_zero_are_far_away),
        cmocka_unit_test(bad_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
