/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index as bytes: what was put comes out; a change of any byte is noticed; a hostile
 * index with right checksums is refused or harmless, which the sanitizers watch over.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/hash.h"
#include "format/index.h"

#define N 5

static const char *const names[N] = {"a.png", "b.png", "c.png", "d.png", "e.png"};
static uint64_t sizes[N] = {10, 0, 4000000000, 7, 7};

/* An index of class folders: classes x and y, samples 0 .. 2 in x, the others in y/z. */
static void
make_folder(struct sti_index_writer *writer)
{
    struct sti_index_head head = {.format = STK_FORMAT_CLASS_FOLDER,
                                  .auto_format = STK_FORMAT_CLASS_FOLDER,
                                  .classes = 2,
                                  .sources = 4,
                                  .home_source = 0,
                                  .home_hash = 77,
                                  .samples = N,
                                  .options_hash = 99};
    static const char *const dirs[4] = {"", "x", "y", "y/z"};

    for (int i = 0; i < N; i++)
        head.names_bytes += strlen(names[i]) + 1 + (i < 3 ? 2 : 4);
    head.names_bytes += 2 + 2 + 1 + 2 + 2 + 4;
    assert_int_equal(sti_index_writer_init(writer, &head), 0);
    for (uint32_t i = 0; i < N; i++)
        sti_index_put_entry(writer, i, i < 3 ? "x" : "y/z", names[i], sizes[i], i < 3 ? 0 : 1);
    sti_index_put_class(writer, 0, "x");
    sti_index_put_class(writer, 1, "y");
    sti_index_put_fingerprint(writer);
    for (uint32_t i = 0; i < 4; i++) {
        struct sti_index_source source = {
            .path = dirs[i], .kind = STI_INDEX_DIRECTORY, .mtime_ns = -5 + (int64_t)i};

        sti_index_put_source(writer, i, &source);
    }
    assert_int_equal(sti_index_seal(writer), 0);
}

/* An index of one file with labels. */
static void
make_file(struct sti_index_writer *writer)
{
    struct sti_index_head head = {.format = STK_FORMAT_WINDOW,
                                  .sources = 2,
                                  .home_source = STI_INDEX_NO_HOME,
                                  .has_labels = 1,
                                  .samples = 4,
                                  .data_offset = 16,
                                  .uniform_bytes = 10,
                                  .stride_bytes = 4,
                                  .names_bytes = 8};
    struct sti_index_source data = {
        .path = "tokens", .kind = STI_INDEX_DATA, .mtime_ns = 3, .n_bytes = 38};
    struct sti_index_source labels = {.path = "", .kind = STI_INDEX_LABELS, .n_bytes = 1};

    assert_int_equal(sti_index_writer_init(writer, &head), 0);
    for (uint32_t i = 0; i < 4; i++)
        sti_index_put_label(writer, i, -(int64_t)i);
    sti_index_put_fingerprint(writer);
    sti_index_put_source(writer, 0, &data);
    sti_index_put_source(writer, 1, &labels);
    assert_int_equal(sti_index_seal(writer), 0);
}

/* An index of shards: two fields, of which a sample lacks one. */
static void
make_tar(struct sti_index_writer *writer)
{
    static const char *const keys[] = {"a/0", "../../1", "/2"};
    static const struct sti_index_range ranges[3][2] = {
        {{0, 10}, {1024, 5}}, {{STI_INDEX_NO_FIELD, 0}, {0, 7}}, {{512, 0}, {0, 4}}};
    struct sti_index_head head = {.format = STK_FORMAT_TAR,
                                  .sources = 2,
                                  .home_source = STI_INDEX_NO_HOME,
                                  .has_labels = 1,
                                  .samples = 3,
                                  .fields = 2,
                                  .names_bytes = 4 + 8 + 3 + 4 + 5 + 6 + 8};

    assert_int_equal(sti_index_writer_init(writer, &head), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct sti_index_span span = {.key = keys[i],
                                      .offset = 512 + 4096 * (uint64_t)i,
                                      .n_bytes = i == 0   ? 1029
                                                 : i == 1 ? 7
                                                          : 512,
                                      .source_idx = i == 2};

        sti_index_put_span(writer, i, &span);
        for (uint32_t field = 0; field < 2; field++)
            sti_index_put_range(writer, i, field, &ranges[i][field]);
        sti_index_put_label(writer, i, 100 + (int64_t)i);
    }
    sti_index_put_field(writer, 0, "jpg");
    sti_index_put_field(writer, 1, "json");
    sti_index_put_fingerprint(writer);
    for (uint32_t i = 0; i < 2; i++) {
        struct sti_index_source source = {.path = i ? "x/b.tar" : "a.tar",
                                          .kind = STI_INDEX_DATA,
                                          .mtime_ns = 3 + (int64_t)i,
                                          .n_bytes = 10240};

        sti_index_put_source(writer, i, &source);
    }
    assert_int_equal(sti_index_seal(writer), 0);
}

static int
load(struct sti_index *index, const void *image, uint64_t n_bytes)
{
    int rc = sti_index_parse(index, image, n_bytes, NULL);

    return rc < 0 ? rc : sti_index_verify(index, NULL);
}

static void
test_folder_round_trip(void **state)
{
    struct sti_index_writer writer;
    struct sti_index index;
    struct sti_index_entry entry;
    struct sti_index_source source;

    (void)state;
    make_folder(&writer);
    assert_int_equal(load(&index, writer.image, writer.head.index_bytes), 0);
    assert_int_equal(index.head.samples, N);
    assert_int_equal(index.head.n_bytes, 4000000024);
    assert_int_equal(index.head.max_bytes, 4000000000);
    assert_int_equal(index.head.uniform_bytes, 0);
    assert_int_equal(index.head.options_hash, 99);
    assert_int_equal(index.head.home_hash, 77);
    assert_int_equal(index.head.largest[0], 4000000000);
    assert_int_equal(index.head.largest[1], 4000000010);
    assert_int_equal(index.head.largest[2], 4000000024);
    assert_int_equal(index.head.largest[18], 4000000024);
    for (uint32_t i = 0; i < N; i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "%s/%s", i < 3 ? "x" : "y/z", names[i]);
        assert_int_equal(sti_index_get_entry(&index, i, &entry), 0);
        assert_string_equal(entry.path, path);
        assert_int_equal(entry.n_bytes, sizes[i]);
        assert_int_equal(entry.label, i < 3 ? 0 : 1);
    }
    assert_string_equal(sti_index_get_class(&index, 1), "y");
    assert_int_equal(sti_index_get_source(&index, 3, &source), 0);
    assert_string_equal(source.path, "y/z");
    assert_int_equal(source.mtime_ns, -2);
    sti_index_writer_fini(&writer);
}

static void
test_file_round_trip(void **state)
{
    struct sti_index_writer writer;
    struct sti_index index;

    (void)state;
    make_file(&writer);
    assert_int_equal(load(&index, writer.image, writer.head.index_bytes), 0);
    assert_int_equal(index.head.n_bytes, 40);
    assert_int_equal(index.head.largest[1], 20);
    assert_int_equal(index.head.largest[2], 40);
    assert_int_equal(sti_index_get_label(&index, 3), -3);
    sti_index_writer_fini(&writer);
}

static int
compare_descending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left < right) - (left > right);
}

/* Sums of the largest, against sorting. */
static void
test_largest(void **state)
{
    enum { MANY = 600000 };
    struct sti_index_head head = {.format = STK_FORMAT_FOLDER,
                                  .sources = 1,
                                  .home_source = STI_INDEX_NO_HOME,
                                  .samples = MANY,
                                  .names_bytes = (uint64_t)MANY * 2 + 1};
    struct sti_index_source root = {.path = "", .kind = STI_INDEX_DIRECTORY};
    struct sti_index_writer writer;
    struct sti_index index;
    uint64_t *sorted = malloc(MANY * sizeof(*sorted));
    uint64_t seed = 3, sum = 0;

    (void)state;
    assert_non_null(sorted);
    assert_int_equal(sti_index_writer_init(&writer, &head), 0);
    for (uint32_t i = 0; i < MANY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        sorted[i] = (seed >> 40) % 5000;
        sti_index_put_entry(&writer, i, "", "f", sorted[i], STI_INDEX_NO_LABEL);
    }
    sti_index_put_fingerprint(&writer);
    sti_index_put_source(&writer, 0, &root);
    assert_int_equal(sti_index_seal(&writer), 0);
    assert_int_equal(load(&index, writer.image, writer.head.index_bytes), 0);
    qsort(sorted, MANY, sizeof(*sorted), compare_descending);
    for (uint32_t step = 0, i = 0; step < STI_INDEX_LARGEST; step++) {
        for (; i < 1u << step; i++)
            sum += sorted[i];
        assert_int_equal(index.head.largest[step], sum);
    }
    sti_index_writer_fini(&writer);
    free(sorted);
}

/* Every byte counts, but for the stamp, which has a checksum of its own. */
static void
check_every_byte(struct sti_index_writer *writer)
{
    struct sti_index index;
    int64_t stamp_ns = 0;

    sti_index_make_stamp(writer->image + STI_INDEX_STAMP_AT, 12345);
    for (uint64_t at = 0; at < writer->head.index_bytes; at++)
        for (unsigned flip = 1; flip < 256; flip += flip < 8 ? 1 : 31) {
            writer->image[at] ^= (unsigned char)flip;
            int rc = load(&index, writer->image, writer->head.index_bytes);
            if (at >= STI_INDEX_STAMP_AT && at < STI_INDEX_HEAD_BYTES) {
                assert_int_equal(rc, 0);
                assert_false(sti_index_get_stamp(&index, &stamp_ns));
            } else {
                assert_true(rc == STK_E_CORRUPT || (rc == STK_E_VERSION && at >= 8 && at < 12));
            }
            writer->image[at] ^= (unsigned char)flip;
        }
    assert_int_equal(load(&index, writer->image, writer->head.index_bytes), 0);
    assert_true(sti_index_get_stamp(&index, &stamp_ns));
    assert_int_equal(stamp_ns, 12345);
    for (uint64_t n = 0; n < writer->head.index_bytes; n++)
        assert_int_equal(load(&index, writer->image, n), STK_E_CORRUPT);
}

static void
test_every_byte(void **state)
{
    struct sti_index_writer writer;

    (void)state;
    make_folder(&writer);
    check_every_byte(&writer);
    sti_index_writer_fini(&writer);
    make_file(&writer);
    check_every_byte(&writer);
    sti_index_writer_fini(&writer);
    make_tar(&writer);
    check_every_byte(&writer);
    sti_index_writer_fini(&writer);
}

/* Of an index of shards: spans lie in their shards, fields in their spans. */
static void
use_spans(const struct sti_index *index)
{
    struct sti_index_source source;
    struct sti_index_span span;
    struct sti_index_range range;

    for (uint64_t i = 0; i < index->head.samples; i++) {
        assert_int_equal(sti_index_get_span(index, i, &span), 0);
        assert_int_equal(sti_index_get_source(index, span.source_idx, &source), 0);
        assert_true(span.offset <= source.n_bytes && span.n_bytes <= source.n_bytes - span.offset);
        for (uint32_t field = 0; field < index->head.fields; field++) {
            assert_int_equal(sti_index_get_range(index, i, field, &range), 0);
            assert_true(range.at == STI_INDEX_NO_FIELD
                            ? range.n_bytes == 0
                            : range.at <= span.n_bytes && range.n_bytes <= span.n_bytes - range.at);
        }
    }
}

/* Whatever the checksums let through must be usable: strings end, ranges lie in the
 * file. */
static void
use(const struct sti_index *index)
{
    struct sti_index_entry entry;
    uint64_t sum = 0;

    if (sti_index_is_one_file(index->head.format)) {
        struct sti_index_source data;
        uint64_t last = index->head.samples - 1;

        assert_int_equal(sti_index_get_source(index, 0, &data), 0);
        assert_true(index->head.data_offset + last * index->head.stride_bytes +
                        index->head.uniform_bytes <=
                    data.n_bytes);
        return;
    }
    if (index->head.format == STK_FORMAT_TAR) {
        use_spans(index);
        return;
    }
    for (uint64_t i = 0; i < index->head.samples; i++) {
        assert_int_equal(sti_index_get_entry(index, i, &entry), 0);
        assert_true(strlen(entry.path) < PATH_MAX);
        assert_true(entry.path[0] != '/' && strcmp(entry.path, "..") != 0);
        assert_true(strncmp(entry.path, "../", 3) != 0 && !strstr(entry.path, "/../"));
        assert_true(entry.n_bytes <= index->head.max_bytes);
        sum += entry.n_bytes;
    }
    assert_int_equal(sum, index->head.n_bytes);
}

static void
check_hostile(const struct sti_index_writer *writer)
{
    uint64_t n_bytes = writer->head.index_bytes;
    uint64_t seed = 11;
    struct sti_index index;
    uint32_t n_accepted = 0;
    unsigned char *image = malloc(n_bytes); /* of exactly this size, so that ASan sees its end */

    assert_non_null(image);
    for (int round = 0; round < 300000; round++) {
        memcpy(image, writer->image, n_bytes);
        for (int i = 0; i <= round % 3; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t at = (seed >> 33) % n_bytes;
            static const unsigned char values[] = {0, 1, 2, 0x2e, 0x2f, 0x7f, 0x80, 0xff};

            image[at] = seed & 1 ? values[(seed >> 20) % 8] : (unsigned char)(seed >> 25);
        }
        sti_index_put_checksums(image, n_bytes);
        if (load(&index, image, n_bytes) == 0) {
            n_accepted++;
            use(&index);
        }
    }
    assert_true(n_accepted > 0);
    free(image);
}

static void
test_hostile(void **state)
{
    struct sti_index_writer writer;

    (void)state;
    make_folder(&writer);
    check_hostile(&writer);
    sti_index_writer_fini(&writer);
    make_file(&writer);
    check_hostile(&writer);
    sti_index_writer_fini(&writer);
    make_tar(&writer);
    check_hostile(&writer);
    sti_index_writer_fini(&writer);
}

/* A path that leaves the data set is refused even where all checksums are right. */
static void
test_paths_stay_inside(void **state)
{
    static const char *const bad[] = {"/tc/y", "../..", "..", "a/..", "a/../b"};
    static const char *const good[] = {"..a/b", "a..", "a../b", "...", "a/..b"};

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        struct sti_index_head head = {.format = STK_FORMAT_FOLDER,
                                      .sources = 1,
                                      .home_source = STI_INDEX_NO_HOME,
                                      .samples = 1};
        struct sti_index_source root = {.path = "", .kind = STI_INDEX_DIRECTORY};
        const char *path = i < 5 ? bad[i] : good[i - 5];
        struct sti_index_writer writer;
        struct sti_index index;

        head.names_bytes = strlen(path) + 2;
        assert_int_equal(sti_index_writer_init(&writer, &head), 0);
        sti_index_put_entry(&writer, 0, "", path, 1, STI_INDEX_NO_LABEL);
        sti_index_put_fingerprint(&writer);
        sti_index_put_source(&writer, 0, &root);
        assert_int_equal(sti_index_seal(&writer), 0);
        assert_int_equal(load(&index, writer.image, writer.head.index_bytes),
                         i < 5 ? STK_E_CORRUPT : 0);
        sti_index_writer_fini(&writer);
    }
}

/* The fingerprint follows the samples, not the times. */
static void
test_fingerprint(void **state)
{
    struct sti_index_writer first, second;

    (void)state;
    make_folder(&first);
    make_folder(&second);
    assert_int_equal(first.head.fingerprint, second.head.fingerprint);
    sti_index_writer_fini(&second);
    sizes[0]++;
    make_folder(&second);
    sizes[0]--;
    assert_int_not_equal(first.head.fingerprint, second.head.fingerprint);
    sti_index_writer_fini(&first);
    sti_index_writer_fini(&second);
    assert_true(sti_hash(STI_HASH_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
}

/* Where the golden files are, which are also what the fuzzer begins with. */
static const char *golden_dir;
static bool is_writing;

static void
check_golden(const char *name, const struct sti_index_writer *writer)
{
    char path[512];
    unsigned char golden[2048];

    (void)snprintf(path, sizeof(path), "%s/%s", golden_dir, name);
    FILE *file = fopen(path, is_writing ? "wb" : "rb");
    assert_non_null(file);
    if (is_writing) {
        assert_int_equal(fwrite(writer->image, 1, writer->head.index_bytes, file),
                         writer->head.index_bytes);
    } else {
        assert_int_equal(fread(golden, 1, sizeof(golden), file), writer->head.index_bytes);
        assert_memory_equal(golden, writer->image, writer->head.index_bytes);
    }
    assert_int_equal(fclose(file), 0);
}

/* An index of version 1, as it lies on disks, is read; its tables are what they are
 * now. */
static void
check_version_1(const char *name, const struct sti_index_writer *writer)
{
    char path[512];
    static uint64_t golden[256]; /* aligned */
    struct sti_index index;

    (void)snprintf(path, sizeof(path), "%s/%s", golden_dir, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n_bytes = fread(golden, 1, sizeof(golden), file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(n_bytes, writer->head.index_bytes);
    assert_int_equal(((const unsigned char *)golden)[8], 1);
    assert_int_equal(load(&index, golden, n_bytes), 0);
    assert_int_equal(index.head.fingerprint, writer->head.fingerprint);
    assert_memory_equal((const char *)golden + STI_INDEX_HEAD_BYTES,
                        writer->image + STI_INDEX_HEAD_BYTES, n_bytes - STI_INDEX_HEAD_BYTES);
    ((unsigned char *)golden)[16] = STK_FORMAT_TAR; /* which that version did not have */
    sti_index_put_checksums((unsigned char *)golden, n_bytes);
    assert_int_equal(load(&index, golden, n_bytes), STK_E_CORRUPT);
}

/* The versions are what they were: indexes that are on disks stay readable. */
static void
test_golden(void **state)
{
    struct sti_index_writer writer;

    (void)state;
    if (!golden_dir)
        skip();
    make_folder(&writer);
    sti_index_make_stamp(writer.image + STI_INDEX_STAMP_AT, 1700000000123456789);
    check_version_1("folder", &writer);
    check_golden("folder2", &writer);
    sti_index_writer_fini(&writer);
    make_file(&writer);
    check_version_1("window", &writer);
    check_golden("window2", &writer);
    sti_index_writer_fini(&writer);
    make_tar(&writer);
    check_golden("tar2", &writer);
    sti_index_writer_fini(&writer);
}

/* With a directory, compares with the golden files in it; with "write" behind it, writes
 * them. */
int
main(int argc, char **argv)
{
    golden_dir = argc > 1 ? argv[1] : NULL;
    is_writing = argc > 2 && strcmp(argv[2], "write") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_round_trip), cmocka_unit_test(test_file_round_trip),
        cmocka_unit_test(test_largest),           cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_hostile),           cmocka_unit_test(test_paths_stay_inside),
        cmocka_unit_test(test_fingerprint),       cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
