/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long opening an index takes: writes the index of a data set of N samples in 1,000
 * class directories (which exist; the files do not, nothing looks at them), then opens it
 * five times. Prints one JSON object.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"
#include "format/dataset.h"
#include "format/index.h"
#include "format/options.h"
#include "format/store.h"
#include "format/time.h"
#include "io/aio.h"

#define CLASSES 1000

static void
must(bool is_good, const char *what)
{
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

static void
class_name(char name[16], uint32_t class_idx)
{
    (void)snprintf(name, 16, "n%08u", class_idx);
}

static int64_t
mtime_of(const char *path)
{
    struct statx found;

    must(statx(AT_FDCWD, path, 0, STATX_MTIME, &found) == 0, path);
    return sti_time_ns(&found.stx_mtime);
}

static void
fill(struct sti_index_writer *writer, const char *root, uint64_t samples)
{
    char name[16], file[48], path[64];

    for (uint64_t i = 0; i < samples; i++) {
        class_name(name, (uint32_t)(i * CLASSES / samples));
        (void)snprintf(file, sizeof(file), "%s_%08llu.JPEG", name, (unsigned long long)i);
        sti_index_put_entry(writer, i, name, file, 100000 + i * 7919 % 20000,
                            (uint32_t)(i * CLASSES / samples));
    }
    for (uint32_t i = 0; i < CLASSES; i++) {
        class_name(name, i);
        sti_index_put_class(writer, i, name);
    }
    sti_index_put_fingerprint(writer);
    struct sti_index_source source = {.path = "", .mtime_ns = mtime_of(root)};
    sti_index_put_source(writer, 0, &source);
    for (uint32_t i = 0; i < CLASSES; i++) {
        class_name(name, i);
        (void)snprintf(path, sizeof(path), "%s/%s", root, name);
        source = (struct sti_index_source){.path = name, .mtime_ns = mtime_of(path)};
        sti_index_put_source(writer, i + 1, &source);
    }
    must(sti_index_seal(writer) == 0, "seal");
}

static void
make(struct sti_aio *aio, const char *root, const stk_dataset_opts *opts, uint64_t samples)
{
    stk_dataset_opts checked;
    struct sti_index_writer writer;
    char name[16], path[64];

    for (uint32_t i = 0; i < CLASSES; i++) {
        class_name(name, i);
        (void)snprintf(path, sizeof(path), "%s/%s", root, name);
        must(mkdir(path, 0777) == 0, path);
    }
    must(sti_options_check(&checked, opts, NULL) == 0, "options");
    struct sti_index_head head = {
        .format = STK_FORMAT_CLASS_FOLDER,
        .auto_format = STK_FORMAT_CLASS_FOLDER,
        .classes = CLASSES,
        .sources = CLASSES + 1,
        .home_source = STI_INDEX_NO_HOME,
        .samples = samples,
        .options_hash = sti_options_hash(&checked, STK_FORMAT_CLASS_FOLDER),
        .names_bytes = samples * (9 + 1 + 9 + 1 + 8 + 5 + 1) + (uint64_t)CLASSES * 20 + 1};
    must(sti_index_writer_init(&writer, &head) == 0, "memory");
    fill(&writer, root, samples);
    struct sti_store_image image = {.bytes = writer.image, .n_bytes = writer.head.index_bytes};
    must(sti_store_save(aio, opts->index_path, &image, NULL) == 0, opts->index_path);
    sti_index_writer_fini(&writer);
}

int
main(int argc, char **argv)
{
    uint64_t samples = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    char root[] = "/tmp/stoker-open-XXXXXX", index_path[64];
    struct sti_aio_opts aio_opts = {.queue_depth = 64, .max_open_files = 64};
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .index_path = index_path};
    struct sti_aio *aio = NULL;
    stk_error err;

    must(samples >= CLASSES, "at least 1000 samples");
    must(mkdtemp(root) != NULL, root);
    (void)snprintf(index_path, sizeof(index_path), "%s.stoker-index", root);
    must(sti_pool_open(&aio_opts.pool, 2, 8) == 0, "pool");
    must(sti_aio_open(&aio, &aio_opts, &err) == 0, "aio");
    make(aio, root, &opts, samples);
    (void)printf("{\"samples\": %llu, \"seconds\": [", (unsigned long long)samples);
    for (int i = 0; i < 5; i++) {
        struct sti_dataset *dataset = NULL;
        stk_dataset_info info = {STK_DATASET_INFO_INIT};
        uint64_t begin_ns = sti_clock_ns();
        int rc = sti_dataset_open(&dataset, aio, root, &opts, NULL, &err);
        uint64_t end_ns = sti_clock_ns();

        must(rc == 0, err.message);
        sti_dataset_info(dataset, &info);
        must(info.samples == samples && !info.index_built, "it was built anew");
        sti_dataset_close(dataset);
        (void)printf("%s%.4f", i ? ", " : "", (double)(end_ns - begin_ns) * 1e-9);
    }
    (void)printf("]}\n");
    sti_aio_close(aio);
    sti_pool_close(aio_opts.pool);
    must(unlink(index_path) == 0, index_path);
    must(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0, root);
    return 0;
}
