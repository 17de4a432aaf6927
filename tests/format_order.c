/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the samples of a class folder, for imagefolder_order.py: label, path, NUL. */
#include <stdio.h>

#include "base/pool.h"
#include "format/dataset.h"
#include "io/aio.h"

int
main(int argc, char **argv)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_CLASS_FOLDER,
                             .rebuild = 1};
    struct sti_aio_opts aio_opts = {.queue_depth = 64, .max_open_files = 64};
    struct sti_pool *pool = NULL;
    struct sti_aio *aio = NULL;
    struct sti_dataset *dataset = NULL;
    struct sti_extent extent;
    stk_error err;

    if (argc != 2 || sti_pool_open(&pool, 2, 8) < 0)
        return 2;
    aio_opts.pool = pool;
    if (sti_aio_open(&aio, &aio_opts, &err) < 0)
        return 2;
    int rc = sti_dataset_open(&dataset, aio, argv[1], &opts, NULL, &err);
    if (rc < 0)
        (void)fprintf(stderr, "%s: %s\n", err.path, err.message);
    for (uint64_t i = 0; rc == 0 && i < sti_dataset_count(dataset); i++) {
        rc = sti_dataset_extent(dataset, i, &extent);
        (void)printf("%lld %s%c", (long long)sti_dataset_label(dataset, i), extent.path, '\0');
    }
    sti_dataset_close(dataset);
    sti_aio_close(aio);
    sti_pool_close(pool);
    return rc < 0;
}
