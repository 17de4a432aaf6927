/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt/dtype.h"
#include "ckpt_util.h"

void
scratch_make(char path[256])
{
    const char *base = getenv("STOKER_TEST_DIR");

    (void)snprintf(path, 256, "%s/stoker-ckpt-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

void
scratch_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static uint64_t
mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void
fill(char *bytes, uint64_t n_bytes, uint64_t seed)
{
    for (uint64_t at = 0; at < n_bytes; at += 8) {
        uint64_t word = mix(seed + at);

        memcpy(bytes + at, &word, n_bytes - at < 8 ? n_bytes - at : 8);
    }
}

void
state_make(struct state *state, uint32_t n, uint64_t n_bytes, uint64_t seed, uint32_t flags)
{
    uint32_t n_dtypes = 0;

    while (sti_dtype_at(n_dtypes))
        n_dtypes++;
    assert_true(n <= MAX_STATE);
    *state = (struct state){.n = n};
    for (uint32_t at = 0; at < n; at++) {
        const struct sti_dtype *dtype = sti_dtype_at(at % n_dtypes);
        uint64_t random = mix(seed * 1000 + at);
        uint64_t *shape = state->shapes[at];
        uint32_t dims = (uint32_t)(random % 4);
        uint64_t want = 1 + (random >> 8) % (2 * n_bytes / n * 8 / dtype->bits + 1);
        uint64_t size;

        /* Narrow elements come in eights, so that they fill their last byte. */
        if (dtype->bits < 8 && dims == 0)
            dims = 1;
        shape[0] = dtype->bits < 8 ? (want + 7) / 8 * 8 : want;
        shape[1] = dims > 1 ? 1 + random % 3 : 1;
        shape[2] = dims > 2 ? 1 + random % 5 : 1;
        if (dims > 1)
            shape[0] = shape[0] / (shape[1] * shape[2]) / 8 * 8 + 8;
        if (at % 11 == 7 && dims > 0)
            shape[0] = 0;
        (void)snprintf(state->names[at], sizeof(state->names[at]), "layer.%u.\"w\\%s\" \xc3\xbc",
                       at, dtype->name);
        assert_int_equal(sti_dtype_bytes(dtype, shape, dims, &size), 0);
        state->data[at] = malloc(size + 8);
        assert_non_null(state->data[at]);
        fill(state->data[at], size, random);
        state->tensors[at] = (stk_tensor){.name = state->names[at],
                                          .dtype = dtype->name,
                                          .shape = shape,
                                          .dims = dims,
                                          .data = state->data[at],
                                          .n_bytes = size,
                                          .flags = flags};
    }
}

void
state_free(struct state *state)
{
    for (uint32_t at = 0; at < state->n; at++)
        free(state->data[at]);
    state->n = 0;
}

void
state_step(struct state *state, uint64_t seed)
{
    for (uint32_t at = 0; at < state->n; at++)
        fill(state->data[at], state->tensors[at].n_bytes, mix(seed) + at);
}

static bool
load_is(const struct state *state, char *const *loaded)
{
    for (uint32_t at = 0; at < state->n; at++)
        if (memcmp(loaded[at], state->data[at], state->tensors[at].n_bytes) != 0)
            return false;
    return true;
}

bool
state_is(stk_view *view, const struct state *state)
{
    stk_load loads[MAX_STATE];
    char *loaded[MAX_STATE];
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_error err;

    assert_int_equal(stk_view_get_info(view, &info), 0);
    if (info.tensors != state->n)
        return false;
    for (uint32_t at = 0; at < state->n; at++) {
        loaded[at] = malloc(state->tensors[at].n_bytes + 1);
        assert_non_null(loaded[at]);
        loads[at] = (stk_load){
            .name = state->names[at], .dst = loaded[at], .n_bytes = state->tensors[at].n_bytes};
    }
    int rc = stk_view_load(view, loads, state->n, &err);
    if (rc < 0)
        print_error("load: %s: %s\n", err.path, err.message);
    bool is = rc == 0 && load_is(state, loaded);
    for (uint32_t at = 0; at < state->n; at++)
        free(loaded[at]);
    return is;
}

const char *const *
test_methods(void)
{
    static const char *methods[3];
    const char *wanted = getenv("STOKER_TEST_METHODS");
    stk_engine *engine;
    uint32_t n = 0;

    if (!wanted || strstr(wanted, "uring")) {
        int rc = stk_engine_open(
            &engine, &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = "uring"}, NULL);

        if (rc == 0) {
            stk_engine_close(engine);
            methods[n++] = "uring";
        }
    }
    if (!wanted || strstr(wanted, "sync"))
        methods[n++] = "sync";
    methods[n] = NULL;
    return methods;
}

uint32_t
open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}
