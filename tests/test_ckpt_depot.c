/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node gives to others, over every method: steps, manifests and parts, byte for
 * byte, and nothing else, whatever is asked for and however.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "ckpt/depot.h"
#include "ckpt_util.h"
#include "comm_util.h"

#define WORLD 2u
#define MOST 65536u
#define PART_BYTES 150001u
#define ID "0123456789abcdef-7"

/* Rank 0 asks, and rank 1 has a directory and a root. */
struct yard {
    struct team team;
    struct sti_pool *pool;
    struct sti_aio *aio;
    struct sti_depot *depots[WORLD];
    struct sti_root roots[2];
    char top[256];
    char second[300];
    uint32_t n_done;
};

static void
write_bytes(const char *path, uint64_t n_bytes, uint64_t seed)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    for (uint64_t at = 0; at < n_bytes; at++)
        assert_true(fputc(pattern(seed, at), file) != EOF);
    assert_int_equal(fclose(file), 0);
}

static void
make_dir(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

/* Two steps and their parts, a file that is none of ours, and a manifest that is no
 * file. */
static void
fill_roots(struct yard *yard)
{
    char path[512];

    for (int at = 0; at < 2; at++) {
        const char *root = at == 0 ? yard->top : yard->second;

        (void)snprintf(path, sizeof(path), "%s/step-12." ID, root);
        make_dir(path);
        (void)snprintf(path, sizeof(path), "%s/step-12." ID "/part-3-%d.bin", root, at);
        write_bytes(path, PART_BYTES, 30 + (uint64_t)at);
    }
    (void)snprintf(path, sizeof(path), "%s/step-12." ID "/model.safetensors", yard->top);
    write_bytes(path, 10, 40);
    (void)snprintf(path, sizeof(path), "%s/secret", yard->top);
    write_bytes(path, 100, 50);
    (void)snprintf(path, sizeof(path), "%s/step-12", yard->top);
    make_dir(path);
    (void)snprintf(path, sizeof(path), "%s/step-12/manifest.json", yard->top);
    write_bytes(path, PART_BYTES, 20);
    (void)snprintf(path, sizeof(path), "%s/step-9", yard->top);
    make_dir(path);
    (void)snprintf(path, sizeof(path), "%s/step-9/manifest.json", yard->top);
    make_dir(path);
}

static void
serve(struct member *member, struct sti_comm_incoming *incoming)
{
    sti_depot_on_request(member->context, incoming);
}

static void
yard_open(struct yard *yard, const char *method)
{
    const char *const paths[2] = {yard->top, yard->second};

    scratch_make(yard->top);
    (void)snprintf(yard->second, sizeof(yard->second), "%s/second", yard->top);
    make_dir(yard->second);
    fill_roots(yard);
    for (int at = 0; at < 2; at++) {
        yard->roots[at].dir_fd = open(paths[at], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(yard->roots[at].dir_fd >= 0);
        yard->roots[at].path = sti_mem_strdup(at == 0 ? "." : yard->second);
        yard->roots[at].dio = sti_dio_buffered();
    }
    assert_int_equal(sti_pool_open(&yard->pool, 1, 2), 0);
    assert_int_equal(sti_aio_open(&yard->aio,
                                  &(struct sti_aio_opts){.method = "sync",
                                                         .pool = yard->pool,
                                                         .queue_depth = 8,
                                                         .max_open_files = 8},
                                  NULL),
                     0);
    team_init(&yard->team, method, WORLD);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        yard->team.members[rank].opts.timeout_ns = 2 * STI_NS_PER_S;
        yard->team.members[rank].opts.retry_ns = 50 * MS;
    }
    team_open(&yard->team);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const struct sti_depot_opts opts = {.comm = team_comm(&yard->team, rank),
                                            .aio = yard->aio,
                                            .roots = rank == 1 ? yard->roots : NULL,
                                            .n_roots = rank == 1 ? 2 : 0,
                                            .most_bytes = MOST};

        assert_int_equal(sti_depot_new(&yard->depots[rank], &opts), 0);
        sti_depot_set_verb(yard->depots[rank], VERB_GET);
        yard->team.members[rank].context = yard->depots[rank];
        yard->team.members[rank].serve = serve;
    }
}

/* Gives time to both ranks and to what they read. */
static void
pass(struct yard *yard)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        (void)sti_depot_step(yard->depots[rank]);
    (void)sti_aio_wait(yard->aio, 0);
    team_pass(&yard->team, 1);
}

static void
yard_close(struct yard *yard)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        sti_depot_leave(yard->depots[rank]);
    for (int turn = 0; turn < 5000; turn++) {
        pass(yard);
        if (sti_depot_is_idle(yard->depots[0]) && sti_depot_is_idle(yard->depots[1]))
            break;
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_true(sti_depot_is_idle(yard->depots[rank]));
        sti_depot_free(yard->depots[rank]);
    }
    team_close(&yard->team);
    sti_aio_close(yard->aio);
    sti_pool_close(yard->pool);
    for (int at = 0; at < 2; at++)
        sti_root_close(&yard->roots[at]);
    scratch_remove(yard->top);
}

static void
for_each_method(void (*test)(struct yard *yard))
{
    for (const char *const *method = team_methods(); *method; method++) {
        struct yard *yard = calloc(1, sizeof(*yard));

        assert_non_null(yard);
        yard_open(yard, *method);
        test(yard);
        yard_close(yard);
        free(yard);
    }
}

static void
on_done(struct sti_depot_ask *ask)
{
    struct yard *yard = ask->context;

    yard->n_done++;
}

static int
run(struct yard *yard, struct sti_depot_ask *ask)
{
    uint32_t n = yard->n_done + 1;

    ask->peer = ask->peer ? ask->peer : 1;
    ask->done = on_done;
    ask->context = yard;
    sti_depot_ask(yard->depots[0], ask);
    for (int turn = 0; yard->n_done < n && turn < 20000; turn++)
        pass(yard);
    assert_int_equal(yard->n_done, n);
    return ask->result;
}

/* ---- what is there -------------------------------------------------------------- */

static void
read_all(struct yard *yard)
{
    static unsigned char into[MOST + STI_DEPOT_SIZE_BYTES];
    struct sti_depot_ask ask = {.what = STI_DEPOT_STEPS, .into = into, .n_bytes = 64};

    assert_int_equal(run(yard, &ask), 0);
    assert_int_equal(ask.got_bytes, 16);
    assert_int_equal(into[0], 12); /* the newest first */
    assert_int_equal(into[8], 9);
    ask = (struct sti_depot_ask){.what = STI_DEPOT_STEPS, .into = into, .n_bytes = 8};
    assert_int_equal(run(yard, &ask), 0);
    assert_int_equal(ask.got_bytes, 8);
    assert_int_equal(ask.file_bytes, 16); /* there are more */
    for (uint64_t offset = 0; offset < PART_BYTES + 2 * MOST; offset += 50000) {
        uint64_t left = offset < PART_BYTES ? PART_BYTES - offset : 0;

        for (uint64_t of = 20; of <= 31; of += of == 20 ? 10 : 1) {
            ask = (struct sti_depot_ask){.what = of == 20 ? STI_DEPOT_MANIFEST : STI_DEPOT_PART,
                                         .step = 12,
                                         .id = ID,
                                         .root = of == 31 ? yard->second : ".",
                                         .writer = 3,
                                         .number = of == 31,
                                         .offset = offset,
                                         .into = into,
                                         .n_bytes = MOST};
            assert_int_equal(run(yard, &ask), 0);
            assert_int_equal(ask.file_bytes, PART_BYTES);
            assert_int_equal(ask.got_bytes, left < MOST ? left : MOST);
            for (uint32_t at = 0; at < ask.got_bytes; at++)
                if (into[at] != pattern(of, offset + at))
                    fail_msg("%u: byte %u", (unsigned)of, (unsigned)(offset + at));
        }
    }
    ask = (struct sti_depot_ask){
        .what = STI_DEPOT_PART, .step = 12, .id = ID, .root = ".", .writer = 3, .into = into};
    assert_int_equal(run(yard, &ask), 0); /* only how large it is */
    assert_int_equal(ask.got_bytes, 0);
    assert_int_equal(ask.file_bytes, PART_BYTES);
    ask.has_one_part = true;
    assert_int_equal(run(yard, &ask), 0);
    assert_int_equal(ask.file_bytes, 10);
}

static void
test_what_is_there(void **unused)
{
    (void)unused;
    for_each_method(read_all);
}

/* ---- what is not, and what is refused ------------------------------------------- */

static void
refuse_all(struct yard *yard)
{
    static unsigned char into[MOST + 4096];
    static char long_root[1002];
    const struct sti_depot_ask good = {.what = STI_DEPOT_PART,
                                       .step = 12,
                                       .id = ID,
                                       .root = ".",
                                       .writer = 3,
                                       .into = into,
                                       .n_bytes = 100};
    struct sti_depot_ask cases[14];
    int expected[14];
    int n = 0;

    memset(long_root, 'r', sizeof(long_root) - 1);
    long_root[0] = '/';
#define CASE(code, field) \
    cases[n] = good;      \
    cases[n].field;       \
    expected[n++] = (code)
    CASE(-ENOENT, step = 13);
    CASE(-ENOENT, writer = 4);
    CASE(-ENOENT, id = "0123456789abcdef-8");
    CASE(-EINVAL, id = "../../../../etc/passwd");
    CASE(-EINVAL, id = "");
    CASE(-EINVAL, root = "/etc");
    CASE(-EINVAL, root = "..");
    CASE(-EINVAL, root = "");
    CASE(-ENAMETOOLONG, root = long_root);
    CASE(-EINVAL, number = 64);
    CASE(-EINVAL, n_bytes = MOST + 1);
    CASE(-EINVAL, offset = UINT64_MAX);
    CASE(-EINVAL, what = (enum sti_depot_what)4);
    CASE(-EINVAL, step = UINT64_MAX);
    for (int at = 0; at < n; at++) {
        int rc = run(yard, &cases[at]);

        if (rc != expected[at])
            fail_msg("case %d: %d, not %d", at, rc, expected[at]);
    }
    struct sti_depot_ask ask = {.what = STI_DEPOT_MANIFEST, .step = 9, .into = into, .n_bytes = 9};
    assert_int_equal(run(yard, &ask), -EINVAL); /* a directory */
    ask.step = 10;
    assert_int_equal(run(yard, &ask), -ENOENT);
}

static void
test_what_is_refused(void **unused)
{
    (void)unused;
    for_each_method(refuse_all);
}

/* ---- noise ---------------------------------------------------------------------- */

struct noise {
    struct yard *yard;
    struct sti_comm_request request;
    unsigned char small[STI_COMM_SMALL_MAX];
    unsigned char into[256];
};

static void
on_noise(struct sti_comm_request *request)
{
    struct noise *noise = request->context;

    assert_int_equal(request->result, 0); /* it is answered */
    noise->yard->n_done++;
}

/* A good question of which some bytes are others, or bytes of no meaning; of any
 * length. */
static void
draw(struct noise *noise, uint64_t *seed)
{
    static const unsigned char head[40] = {3, 0, 0, 0, 64, 0, 0, 0, 12, 0, 0, 0, 0, 0,
                                           0, 0, 0, 0, 0,  0, 0, 0, 0,  0, 3, 0, 0, 0,
                                           0, 0, 0, 0, 0,  0, 0, 0, 1,  0, 0, 0};
    uint64_t kind = *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    uint32_t n = STI_DEPOT_HEAD_BYTES + 1;

    memset(noise->small, 0, sizeof(noise->small));
    memcpy(noise->small, head, sizeof(head));
    memcpy(noise->small + 40, ID, sizeof(ID));
    noise->small[STI_DEPOT_HEAD_BYTES] = '.';
    if (kind >> 60 < 4)
        n = (uint32_t)(kind >> 40) % (STI_COMM_SMALL_MAX + 1);
    for (uint32_t left = 1 + (uint32_t)(kind >> 50) % 4; left > 0; left--) {
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        noise->small[(*seed >> 33) % (n > 0 ? n : 1)] = (unsigned char)(*seed >> 57);
    }
    noise->request = (struct sti_comm_request){.peer = 1,
                                               .verb = VERB_GET,
                                               .small = noise->small,
                                               .n_small = n,
                                               .into = noise->into,
                                               .into_bytes = sizeof(noise->into),
                                               .done = on_noise,
                                               .context = noise};
}

static void
make_noise(struct yard *yard)
{
    static unsigned char into[MOST + STI_DEPOT_SIZE_BYTES];
    struct noise *noise = calloc(1, sizeof(*noise));
    uint32_t n_good = 0;
    uint64_t seed = 5;

    assert_non_null(noise);
    noise->yard = yard;
    for (uint32_t at = 0; at < 1500; at++) {
        uint32_t n = yard->n_done + 1;

        draw(noise, &seed);
        assert_int_equal(sti_comm_request(team_comm(&yard->team, 0), &noise->request), 0);
        for (int turn = 0; yard->n_done < n && turn < 5000; turn++)
            pass(yard);
        assert_int_equal(yard->n_done, n);
        n_good += noise->request.code == 0;
        /* What it gives is of the files that may be asked for. */
        if (noise->request.code == 0 && noise->small[0] == 3 &&
            noise->request.n_bytes > STI_DEPOT_SIZE_BYTES &&
            memcmp(noise->small + 16, (const char[8]){0}, 8) == 0)
            assert_true(noise->into[0] == pattern(30, 0) || noise->into[0] == pattern(40, 0));
    }
    assert_true(n_good > 20 && n_good < 1400);
    free(noise);
    struct sti_depot_ask ask = {.what = STI_DEPOT_STEPS, .into = into, .n_bytes = 64};
    assert_int_equal(run(yard, &ask), 0);
    assert_int_equal(ask.got_bytes, 16);
}

static void
test_noise(void **unused)
{
    (void)unused;
    for_each_method(make_noise);
}

/* ---- many at a time, and the end ------------------------------------------------ */

#define MANY 60u

static void
ask_many(struct yard *yard, bool is_ended)
{
    struct sti_depot_ask *asks = calloc(MANY, sizeof(*asks));
    unsigned char *into = malloc(MANY * (size_t)(MOST + STI_DEPOT_SIZE_BYTES));
    uint32_t n_given = 0;

    assert_non_null(asks);
    assert_non_null(into);
    yard->n_done = 0;
    for (uint32_t at = 0; at < MANY; at++) {
        asks[at] = (struct sti_depot_ask){.what = STI_DEPOT_MANIFEST,
                                          .peer = 1,
                                          .step = 12,
                                          .offset = at * 100,
                                          .into = into + at * (size_t)(MOST + STI_DEPOT_SIZE_BYTES),
                                          .n_bytes = MOST,
                                          .done = on_done,
                                          .context = yard};
        sti_depot_ask(yard->depots[0], &asks[at]);
    }
    for (int turn = 0; yard->n_done < MANY && turn < 20000; turn++) {
        if (is_ended && turn == 2)
            sti_depot_leave(yard->depots[0]);
        pass(yard);
    }
    assert_int_equal(yard->n_done, MANY);
    for (uint32_t at = 0; at < MANY; at++) {
        const unsigned char *bytes = asks[at].into;

        assert_true(asks[at].result == 0 || (is_ended && asks[at].result == -ECANCELED));
        n_given += asks[at].result == 0;
        for (uint32_t byte = 0; asks[at].result == 0 && byte < MOST; byte++)
            if (bytes[byte] != pattern(20, at * 100 + byte))
                fail_msg("ask %u: byte %u", at, byte);
    }
    assert_true(is_ended || n_given == MANY);
    free(asks);
    free(into);
}

static void
ask_them(struct yard *yard)
{
    ask_many(yard, false); /* more than are answered at a time */
    ask_many(yard, true);
}

static void
test_many_at_a_time(void **unused)
{
    (void)unused;
    for_each_method(ask_them);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_there),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_many_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
