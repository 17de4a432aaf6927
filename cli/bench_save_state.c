/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What "stoker bench save" saves: tensors of known sizes and values. A value follows from its
 * place and its rank, so that any rank can tell what another one has saved.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "args.h"
#include "bench_save.h"

#define ALIGN_BYTES 64u

/* Of a rank that holds tensors of its own; else they are the same on all. */
static uint32_t
holder_of(const struct bench_save_request *request)
{
    return request->unique && request->engine.comm ? request->engine.comm->rank : 0;
}

/* The 8 bytes at a place. */
static uint64_t
value_at(uint64_t at, uint32_t holder)
{
    return at * UINT64_C(0x9e3779b97f4a7c15) + holder * UINT64_C(0xbf58476d1ce4e5b9);
}

/* The weight of a tensor: mixed sizes are as in a network, a few large ones and many
 * small. */
static uint64_t
weight(const struct bench_save_request *request, uint64_t idx)
{
    static const uint64_t mixed[] = {4096, 1, 1024, 3, 1024, 64, 4096, 1, 2048, 17, 512, 5};

    return request->equal ? 1 : mixed[idx % (sizeof(mixed) / sizeof(mixed[0]))];
}

static int
make_memory(const char *command, struct bench_state *state)
{
    const struct bench_save_request *request = state->request;
    const uint32_t holder = holder_of(request);

    state->memory_bytes = request->bytes + request->tensors * (ALIGN_BYTES + 8);
    state->memory =
        mmap(NULL, state->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    state->tensors = calloc(request->tensors, sizeof(*state->tensors));
    state->shapes = calloc(request->tensors, sizeof(*state->shapes));
    state->names = calloc(request->tensors, sizeof(*state->names));
    if (state->memory == MAP_FAILED || !state->tensors || !state->shapes || !state->names) {
        state->memory = state->memory == MAP_FAILED ? NULL : state->memory;
        return cli_error(command, "no memory for %" PRIu64 " bytes of tensors", request->bytes);
    }
    (void)madvise(state->memory, state->memory_bytes, MADV_HUGEPAGE); /* advice: fine without */
    for (uint64_t at = 0; at < state->memory_bytes; at += 8) {
        const uint64_t value = value_at(at, holder);

        memcpy(state->memory + at, &value,
               state->memory_bytes - at < 8 ? state->memory_bytes - at : 8);
    }
    return CLI_OK;
}

void
bench_state_name(const struct bench_state *state, uint32_t rank, uint64_t idx,
                 char name[BENCH_NAME_BYTES])
{
    if (state->request->unique)
        (void)snprintf(name, BENCH_NAME_BYTES, "%" PRIu32 ".%" PRIu64, rank, idx); /* fits */
    else
        (void)snprintf(name, BENCH_NAME_BYTES, "tensor.%" PRIu64, idx); /* fits */
}

int
bench_state_make(const char *command, struct bench_state *state,
                 const struct bench_save_request *request)
{
    uint64_t sum = 0;
    uint64_t left = request->bytes / 4;
    char *at;

    *state = (struct bench_state){.request = request};
    int rc = make_memory(command, state);
    if (rc != CLI_OK)
        return rc;
    at = state->memory;
    for (uint64_t idx = 0; idx < request->tensors; idx++)
        sum += weight(request, idx);
    for (uint64_t idx = 0; idx < request->tensors; idx++) {
        const double part = (double)weight(request, idx) / (double)sum;
        uint64_t n = (uint64_t)(part * (double)request->bytes / 4);

        n = idx + 1 == request->tensors || n > left ? left : n;
        left -= n;
        state->shapes[idx] = n;
        bench_state_name(state, holder_of(request), idx, state->names[idx]);
        state->tensors[idx] =
            (stk_tensor){.name = state->names[idx],
                         .dtype = "F32",
                         .shape = &state->shapes[idx],
                         .dims = 1,
                         .data = at,
                         .flags = STK_TENSOR_STABLE | (request->unique ? STK_TENSOR_UNIQUE : 0)};
        at += (4 * n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    return CLI_OK;
}

void
bench_state_free(struct bench_state *state)
{
    if (state->memory)
        (void)munmap(state->memory, state->memory_bytes); /* mapped above */
    free(state->tensors);
    free(state->shapes);
    free(state->names);
}

bool
bench_state_is_same(const struct bench_state *state, uint32_t rank, const char *memory)
{
    const uint32_t holder = state->request->unique ? rank : 0;

    for (uint64_t idx = 0; idx < state->request->tensors; idx++) {
        const char *data = state->tensors[idx].data;
        const uint64_t from = (uint64_t)(data - state->memory);
        const uint64_t n_bytes = 4 * state->shapes[idx];

        for (uint64_t at = 0; at < n_bytes; at += 8) { /* from is a multiple of 8 */
            const uint64_t value = value_at(from + at, holder);

            if (memcmp(memory + at, &value, n_bytes - at < 8 ? n_bytes - at : 8) != 0)
                return false;
        }
        memory += n_bytes;
    }
    return true;
}
