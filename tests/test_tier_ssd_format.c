/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stoker/types.h>

#include "base/crc32c.h"
#include "tier/ssd_format.h"

static const struct sti_ssd_identity identity = {.dataset_id = 0x1122334455667788,
                                                 .nonce = 0x99aabbccddeeff01};
static const struct sti_ssd_record record = {
    .sample = 77, .offset = 64 * 1000, .n_bytes = 4711, .crc = 0xdeadbeef};

static void
flip(char *bytes, uint32_t bit)
{
    bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << (bit % 8)));
}

static void
test_header_verifies_whole_only(void **state)
{
    char header[STI_SSD_HEADER_BYTES];

    (void)state;
    sti_ssd_header_encode(header, &identity, &record);
    for (uint32_t bit = 0; bit <= 8 * STI_SSD_HEADER_BYTES; bit++) {
        struct sti_ssd_record found = record;

        if (bit < 8 * STI_SSD_HEADER_BYTES)
            flip(header, bit);
        found.crc = 0;
        assert_int_equal(sti_ssd_header_check(header, &identity, &found),
                         bit == 8 * STI_SSD_HEADER_BYTES);
        if (bit < 8 * STI_SSD_HEADER_BYTES)
            flip(header, bit);
        else
            assert_int_equal(found.crc, record.crc);
    }
}

/* A good header of another sample, place, length, data set or life is not this one. */
static void
test_header_of_another_is_refused(void **state)
{
    struct sti_ssd_record others[3] = {record, record, record};
    struct sti_ssd_identity strangers[2] = {identity, identity};
    char header[STI_SSD_HEADER_BYTES];

    (void)state;
    others[0].sample++;
    others[1].offset += 64;
    others[2].n_bytes--;
    strangers[0].nonce++;
    strangers[1].dataset_id++;
    sti_ssd_header_encode(header, &identity, &record);
    for (int at = 0; at < 3; at++)
        assert_false(sti_ssd_header_check(header, &identity, &others[at]));
    for (int at = 0; at < 2; at++) {
        struct sti_ssd_record found = record;

        assert_false(sti_ssd_header_check(header, &strangers[at], &found));
    }
}

static void
test_entries(void **state)
{
    struct sti_ssd_identity stranger = identity;
    struct sti_ssd_record found;
    char entry[STI_SSD_ENTRY_BYTES];

    (void)state;
    stranger.nonce ^= 1;
    sti_ssd_entry_encode(entry, &identity, &record);
    assert_true(sti_ssd_entry_decode(entry, &identity, &found));
    assert_memory_equal(&found, &record, sizeof(found));
    assert_false(sti_ssd_entry_decode(entry, &stranger, &found));
    for (uint32_t bit = 0; bit < 8 * STI_SSD_ENTRY_BYTES; bit++) {
        flip(entry, bit);
        assert_false(sti_ssd_entry_decode(entry, &identity, &found));
        flip(entry, bit);
    }
    memset(entry, 0, sizeof(entry)); /* a hole of a file */
    assert_false(sti_ssd_entry_decode(entry, &identity, &found));
}

static void
test_head(void **state)
{
    struct sti_ssd_identity found = {.dataset_id = identity.dataset_id};
    char head[STI_SSD_HEAD_BYTES];

    (void)state;
    sti_ssd_head_encode(head, &identity);
    assert_int_equal(sti_ssd_head_check(head, &found), 0);
    assert_int_equal(found.nonce, identity.nonce);
    found.dataset_id++;
    assert_int_equal(sti_ssd_head_check(head, &found), STK_E_CORRUPT);
    found.dataset_id--;
    head[8]++;
    assert_int_equal(sti_ssd_head_check(head, &found), STK_E_VERSION);
    head[8]--;
    for (uint32_t bit = 0; bit < 8 * STI_SSD_HEAD_BYTES; bit++) {
        flip(head, bit);
        assert_int_not_equal(sti_ssd_head_check(head, &found), 0);
        flip(head, bit);
    }
}

/* What the format's page says: the bytes themselves. */
static void
test_golden(void **state)
{
    static const unsigned char expected[28] = {77,   0,    0, 0, 0,    0,    0,    0,
                                               0,    0xfa, 0, 0, 0,    0,    0,    0,
                                               0x67, 0x12, 0, 0, 0xef, 0xbe, 0xad, 0xde};
    unsigned char entry[STI_SSD_ENTRY_BYTES];
    unsigned char header[STI_SSD_HEADER_BYTES];

    (void)state;
    sti_ssd_entry_encode(entry, &identity, &record);
    assert_memory_equal(entry, expected, sizeof(expected));
    sti_ssd_header_encode(header, &identity, &record);
    assert_memory_equal(header, "STKs", 4);
    assert_memory_equal(header + 24, expected, 20); /* sample, offset, length, in this order */
}

static void
test_places_fit_in_blocks(void **state)
{
    (void)state;
    for (uint64_t offset = 0; offset < 10000; offset++) {
        uint64_t at = sti_ssd_align(offset);

        assert_true(at >= offset && at < offset + 128 && at % 64 == 0);
        for (uint64_t block = 512; block <= 4096; block *= 2)
            assert_true(at % block + STI_SSD_HEADER_BYTES < block);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_verifies_whole_only),
        cmocka_unit_test(test_header_of_another_is_refused),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_places_fit_in_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
