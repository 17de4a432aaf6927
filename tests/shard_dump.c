/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loader hands out of a data set, for tar_shards.py to compare: opens PATH through
 * the public interface, reads one epoch in sequence and prints, for each sample, its
 * name, its label and the length and CRC-32C of each field.
 *
 *     shard_dump METHOD MAX_OPEN_FILES FIELDS PATH      FIELDS "" for all
 *
 * A line is NAME<tab>LABEL, then <tab>FIELD=LENGTH:CRC or <tab>FIELD=- for each field,
 * ended by a NUL, since names may hold anything else. An error is printed as "PATH:
 * MESSAGE" on stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stoker/stoker.h>

#include "base/crc32c.h"

static int
fail(const stk_error *err)
{
    (void)fprintf(stderr, "%s: %s\n", err->path, err->message);
    return 1;
}

static void
print_sample(const stk_dataset *dataset, const stk_batch *batch, uint32_t at)
{
    (void)printf("%s\t%" PRId64, stk_dataset_sample_name(dataset, batch->samples[at]),
                 batch->labels[at]);
    for (uint64_t i = 0; i < batch->n_fields; i++) {
        const stk_field *field = &batch->fields[i];

        (void)printf("\t%s=", field->name);
        if (!field->items[at])
            (void)printf("-");
        else
            (void)printf("%" PRIu64 ":%08" PRIx32, field->n_bytes[at],
                         sti_crc32c(0, field->items[at], field->n_bytes[at]));
    }
    (void)putchar('\0');
}

static int
dump(stk_engine *engine, stk_dataset *dataset, stk_error *err)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 7, .epochs = 1,
                            .layout = STK_LAYOUT_RAW, .order = &order};
    stk_loader *loader;
    stk_batch batch;
    int rc = stk_loader_open(&loader, engine, dataset, &opts, err);

    if (rc < 0)
        return rc;
    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        for (uint32_t at = 0; at < batch.count; at++)
            print_sample(dataset, &batch, at);
        (void)stk_loader_release(loader, &batch); /* it is the one that was just taken */
    }
    if (rc < 0)
        (void)stk_loader_last_error(loader, err); /* there is one */
    stk_loader_close(loader);
    return rc;
}

int
main(int argc, char **argv)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT};
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};
    stk_engine *engine = NULL;
    stk_dataset *dataset = NULL;
    stk_error err;

    if (argc != 5)
        return 2;
    engine_opts.io_method = argv[1];
    engine_opts.max_open_files = (uint32_t)strtoul(argv[2], NULL, 10);
    opts.fields = argv[3][0] ? argv[3] : NULL;
    if (stk_engine_open(&engine, &engine_opts, &err) < 0)
        return 2;
    int rc = stk_dataset_open(&dataset, engine, argv[4], &opts, &err);
    if (rc == 0)
        rc = dump(engine, dataset, &err);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    return rc < 0 ? fail(&err) : 0;
}
