/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a data set three times in a new random order every time, 64 samples a step, holding up
 * to 1 GiB of it in RAM:  raw_loader /data/train */
#include <stoker/stoker.h>

#include <stdio.h>

int
main(int argc, char **argv)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = "ram:1G"};
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 7};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 64, .epochs = 3,
                            .layout = STK_LAYOUT_RAW, .order = &order};
    stk_engine *engine = NULL;
    stk_dataset *data = NULL;
    stk_loader *loader = NULL;
    stk_batch batch;
    stk_error err = {0};
    unsigned long long bytes = 0;
    int rc;

    rc = stk_engine_open(&engine, &engine_opts, &err);
    if (rc == 0)
        rc = stk_dataset_open(&data, engine, argc > 1 ? argv[1] : ".", NULL, &err);
    if (rc == 0)
        rc = stk_loader_open(&loader, engine, data, &opts, &err);

    while (rc == 0 && (rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        for (uint32_t k = 0; k < batch.count; k++)
            bytes += batch.n_bytes[k]; /* the sample: batch.items[k], batch.labels[k] */
        rc = stk_loader_release(loader, &batch);
    }
    if (rc < 0)
        fprintf(stderr, "%s: %s %s\n", stk_strerror(rc), err.message, err.path);
    else
        printf("%llu bytes\n", bytes);
    stk_loader_close(loader);
    stk_dataset_close(data);
    stk_engine_close(engine);
    return rc < 0;
}
