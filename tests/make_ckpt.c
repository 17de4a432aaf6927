/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For scripts:
 *
 *     make_ckpt DIR [ROOT...]       saves steps 1 .. 4 of a known state
 *     make_ckpt --read FILE NAME    writes a tensor of a plain safetensors file to stdout
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stoker/stoker.h>

static float weights[3000][7];
static double moments[1111];
static unsigned char mask[13];

static int
save(stk_ckpt *ckpt, uint64_t step, stk_error *err)
{
    const uint64_t shape[] = {3000, 7};
    const uint64_t moments_shape = 1111;
    const uint64_t mask_shape = 13;
    const stk_tensor tensors[] = {
        {.name = "mask", .dtype = "BOOL", .shape = &mask_shape, .dims = 1, .data = mask},
        {.name = "weights", .dtype = "F32", .shape = shape, .dims = 2, .data = weights},
        {.name = "moments", .dtype = "F64", .shape = &moments_shape, .dims = 1, .data = moments},
        {.name = "scalar", .dtype = "F64", .data = moments},
    };
    char text[24];
    const stk_pair pair = {"step", text};
    const stk_blob blob = {"rng", mask, sizeof(mask)};

    (void)snprintf(text, sizeof(text), "%" PRIu64, step);
    for (uint32_t at = 0; at < 3000 * 7; at++)
        (&weights[0][0])[at] = (float)(at + step);
    for (uint32_t at = 0; at < 1111; at++)
        moments[at] = (double)at * 0.5 + (double)step;
    for (uint32_t at = 0; at < 13; at++)
        mask[at] = at % 3 == step % 3;
    return stk_ckpt_save(ckpt,
                         &(stk_save){STK_SAVE_INIT, .step = step, .tensors = tensors,
                                     .n_tensors = 4, .blobs = &blob, .n_blobs = 1,
                                     .metadata = &pair, .n_metadata = 1},
                         err);
}

static int
read_tensor(const char *path, const char *name)
{
    stk_engine *engine = NULL;
    stk_view *view = NULL;
    stk_view_tensor tensor = {0};
    stk_error err = {0};
    int rc = stk_engine_open(&engine, NULL, &err);

    if (rc == 0)
        rc = stk_view_open_file(&view, engine, path, &err);
    if (rc == 0)
        rc = stk_view_tensor_find(view, name, &tensor);
    stk_load load = {.name = name, .dst = malloc(tensor.n_bytes + 1), .n_bytes = tensor.n_bytes};
    if (rc == 0)
        rc = load.dst ? stk_view_load(view, &load, 1, &err) : -1;
    if (rc == 0 && fwrite(load.dst, 1, load.n_bytes, stdout) != load.n_bytes)
        rc = -1;
    if (rc < 0)
        (void)fprintf(stderr, "make_ckpt: %s: %s: %s\n", path, name, err.message);
    free(load.dst);
    stk_view_close(view);
    stk_engine_close(engine);
    return rc < 0;
}

int
main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--read") == 0)
        return read_tensor(argv[2], argv[3]);

    static char roots[4096];
    size_t used = 0;
    stk_engine *engine = NULL;
    stk_ckpt *ckpt = NULL;
    stk_error err = {0};

    for (int at = 2; at < argc; at++)
        used += (size_t)snprintf(roots + used, sizeof(roots) - used, " %s", argv[at]);
    int rc = argc < 2 ? -1 : stk_engine_open(&engine, NULL, &err);
    if (rc == 0)
        rc = stk_ckpt_open(&ckpt, engine, argv[1],
                           &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = roots, .keep = STK_NONE,
                                            .chunk_bytes = 4096},
                           &err);
    for (uint64_t step = 1; rc == 0 && step <= 4; step++)
        rc = save(ckpt, step, &err);
    if (rc == 0)
        rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
    stk_ckpt_close(ckpt);
    stk_engine_close(engine);
    if (rc < 0)
        (void)fprintf(stderr, "make_ckpt: %s: %s\n", err.path, err.message);
    return rc < 0;
}
