/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small network on Fashion-MNIST through Stoker: 60,000 single image files of a
 * class folder for training, and 10,000 images of one IDX file for validation. Both
 * loaders share one engine and take turns.
 *
 *     fashion_layout /usr/share/datasets/fashion-mnist DIR      makes DIR
 *     train_fashion --data DIR --tiers ram:64M --shape "rbps=40M riops=4000"
 *
 * With --checkpoints (train_ckpt.c) it saves all that it needs to go on, after every step.
 *
 *     mpirun -n 4 train_fashion_mpi --data DIR ...      each rank has a part of every batch
 *
 * What matters of the library is in open_all(), train_epoch() and close_all().
 */
#include <stoker/stoker.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "mlp.h"
#include "ranks.h"
#include "told.h"
#include "train_ckpt.h"
#include "train_options.h"
#include "train_util.h"

#define LEARNING_RATE 0.02F
#define LEARNING_RATE_DECAY 0.75F /* from one epoch to the next */

/* One epoch as it was seen from outside the library, and what the library says of it. */
struct epoch {
    double seconds; /* of training, without the validation */
    double stall_seconds;
    double loss;
    double accuracy;
    stk_loader_stats stats;
};

struct run {
    struct train_options options;
    struct ranks ranks;
    stk_engine *engine;
    stk_dataset *train_data, *test_data;
    stk_loader *train, *test;
    uint64_t train_bytes, test_bytes; /* of one stored sample; the pixels are the last of them */
    uint64_t train_samples, test_samples;
    const uint8_t *images[MLP_BATCH_MAX]; /* where the pixels of the current batch lie */
    struct mlp *net;
    struct train_ckpt saved;
    uint32_t first_epoch; /* of this run: a resumed one begins within it */
    struct epoch epochs[TRAIN_EPOCHS_MAX];
    stk_loader_stats total;
    double begun_seconds;       /* when the engine was opened */
    double first_batch_seconds; /* from then on */
    struct told told;
};

/* Opens the data set at data/name and checks that its samples end in an image of 28 x
 * 28. */
static int
open_data(struct run *run, const char *name, const stk_dataset_opts *opts, stk_dataset **ret_data,
          stk_dataset_info *info)
{
    char path[1024];
    stk_error err;
    int rc;

    snprintf(path, sizeof(path), "%s/%s", run->options.data, name);
    rc = stk_dataset_open(ret_data, run->engine, path, opts, &err);
    if (rc < 0)
        return complain("cannot open the data set", rc, &err);
    rc = stk_dataset_get_info(*ret_data, info);
    if (rc == 0 && info->record_bytes < MLP_PIXELS) {
        fprintf(stderr, "train_fashion: %s: samples are not images of 28 x 28\n", path);
        rc = -EINVAL;
    }
    return rc;
}

static int
open_datasets(struct run *run)
{
    char labels[1024];
    stk_dataset_info train = {STK_DATASET_INFO_INIT};
    stk_dataset_info test = {STK_DATASET_INFO_INIT};
    int rc;

    rc = open_data(run, "train", NULL, &run->train_data, &train);
    if (rc < 0)
        return rc;
    snprintf(labels, sizeof(labels), "%s/test-labels.idx1-ubyte", run->options.data);
    rc = open_data(
        run, "test-images.idx3-ubyte",
        &(stk_dataset_opts){STK_DATASET_OPTS_INIT, .format = STK_FORMAT_IDX, .labels_path = labels},
        &run->test_data, &test);
    if (rc < 0)
        return rc;
    if (train.classes != MLP_CLASSES) {
        fprintf(stderr, "train_fashion: %u classes instead of 10\n", train.classes);
        return -EINVAL;
    }
    run->train_bytes = train.record_bytes;
    run->train_samples = train.samples;
    run->test_bytes = test.record_bytes;
    run->test_samples = test.samples;
    return 0;
}

static uint64_t
epoch_steps(const struct run *run)
{
    const uint64_t n = run->train_samples;
    const uint64_t own = (n + run->ranks.world - 1) / run->ranks.world; /* padded, as torch does */

    return (own + run->options.batch - 1) / run->options.batch;
}

/* Where training goes on, if there is a checkpoint. The last step of an epoch leads to
 * the next one. */
static int
open_checkpoints(struct run *run, stk_loader_opts *opts)
{
    const uint64_t per_epoch = epoch_steps(run);
    struct train_ckpt *saved = &run->saved;
    int rc;

    if (!run->options.checkpoints)
        return 0;
    rc = train_ckpt_open(saved, run->engine, run->options.checkpoints, run->net);
    if (rc < 0 || saved->step == 0)
        return rc;
    if (saved->step >= per_epoch * run->options.epochs) {
        fprintf(stderr, "train_fashion: %s: that training is over\n", run->options.checkpoints);
        return -EINVAL;
    }
    opts->state = saved->state;
    opts->state_bytes = saved->state_bytes;
    run->first_epoch = (uint32_t)(saved->step / per_epoch);
    printf("resumed after step %" PRIu64 ": %" PRIu64 " of %" PRIu64 " of epoch %u\n", saved->step,
           saved->step % per_epoch, per_epoch, run->first_epoch + 1);
    return 0;
}

static stk_loader_opts
loader_opts(const struct train_options *o)
{
    return (stk_loader_opts){STK_LOADER_OPTS_INIT, .batch_size = o->batch, .epochs = o->epochs,
                             .policy = o->policy, .staging_batches = o->staging_batches};
}

static int
open_all(struct run *run)
{
    const struct train_options *o = &run->options;
    stk_order_opts shuffled = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = o->seed,
                               .world = run->ranks.world, .rank = run->ranks.rank};
    /* Every rank validates by itself. */
    stk_order_opts in_order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL, .world = 1};
    stk_loader_opts opts = loader_opts(o);
    stk_error err;
    int rc;

    run->begun_seconds = now_seconds();
    rc = stk_engine_open(&run->engine,
                         &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .tiers = o->tiers,
                                            .shape = o->shape, .ssd_shape = o->ssd_shape,
                                            .io_method = o->io_method,
                                            .comm = run->ranks.world > 1 ? &run->ranks.comm : NULL},
                         &err);
    if (rc < 0)
        return complain("cannot start the engine", rc, &err);
    rc = open_datasets(run);
    if (rc < 0)
        return rc;
    opts.order = &shuffled;
    rc = open_checkpoints(run, &opts);
    if (rc < 0)
        return rc;
    rc = stk_loader_open(&run->train, run->engine, run->train_data, &opts, &err);
    if (rc < 0)
        return complain("cannot open the loader for training", rc, &err);
    opts.order = &in_order;
    opts.state = NULL; /* the validation begins anew */
    opts.state_bytes = 0;
    rc = stk_loader_open(&run->test, run->engine, run->test_data, &opts, &err);
    if (rc < 0)
        return complain("cannot open the loader for validation", rc, &err);
    return 0;
}

static void
close_all(struct run *run)
{
    train_ckpt_close(&run->saved);
    stk_loader_close(run->test);
    stk_loader_close(run->train);
    stk_dataset_close(run->test_data);
    stk_dataset_close(run->train_data);
    stk_engine_close(run->engine);
}

/* Finds the pixels of a batch's samples: the last bytes of each, behind a header if
 * any. */
static void
find_images(struct run *run, const stk_batch *batch)
{
    for (uint32_t s = 0; s < batch->count; s++)
        run->images[s] = (const uint8_t *)batch->items[s] + (batch->n_bytes[s] - MLP_PIXELS);
}

static int
next_failed(stk_loader *loader, int rc)
{
    stk_error err;

    if (stk_loader_last_error(loader, &err) == 0)
        return complain("no next batch", rc, &err);
    fprintf(stderr, "train_fashion: no next batch: %s\n", rc ? stk_strerror(rc) : "end too early");
    return rc < 0 ? rc : -EIO;
}

static int
average_gradient(struct run *run)
{
    size_t n;
    float *gradient = mlp_get_gradient(run->net, &n);
    const int rc = ranks_mean(&run->ranks, gradient, n);

    if (rc < 0)
        fprintf(stderr, "train_fashion: rank %u does not reach the others\n", run->ranks.rank);
    return rc;
}

static int
train_epoch(struct run *run, struct epoch *epoch, float rate)
{
    const double began = now_seconds();
    uint64_t samples = 0;
    stk_batch batch;
    bool last;
    int rc;

    do {
        const double asked = now_seconds();

        rc = stk_loader_next(run->train, &batch);
        if (rc != STK_BATCH)
            return next_failed(run->train, rc);
        epoch->stall_seconds += now_seconds() - asked;
        if (!(run->first_batch_seconds > 0))
            run->first_batch_seconds = now_seconds() - run->begun_seconds;
        find_images(run, &batch);
        epoch->loss += mlp_find_gradient(run->net, run->images, batch.labels, batch.count);
        samples += batch.count;
        last = batch.last_of_epoch;
        (void)stk_loader_release(run->train, &batch); /* it is borrowed, as of just above */
        rc = train_ckpt_fence(&run->saved);
        if (rc < 0)
            return rc;
        rc = average_gradient(run);
        if (rc < 0)
            return rc;
        mlp_update(run->net, rate);
        rc = train_ckpt_save(&run->saved, run->train);
        if (rc < 0)
            return rc;
    } while (!last);
    epoch->seconds = now_seconds() - began;
    epoch->loss /= (double)samples;
    return 0;
}

static int
validate(struct run *run, struct epoch *epoch)
{
    uint64_t right = 0;
    stk_batch batch;
    bool last;
    int rc;

    do {
        rc = stk_loader_next(run->test, &batch);
        if (rc != STK_BATCH)
            return next_failed(run->test, rc);
        find_images(run, &batch);
        right += mlp_count_right(run->net, run->images, batch.labels, batch.count);
        last = batch.last_of_epoch;
        (void)stk_loader_release(run->test, &batch); /* it is borrowed, as of just above */
    } while (!last);
    epoch->accuracy = (double)right / (double)run->test_samples;
    return 0;
}

static void
print_head(const struct run *run)
{
    const struct train_options *o = &run->options;

    if (run->ranks.rank > 0)
        return; /* one table is enough */
    printf("origin %s, tiers %s, I/O by %s\n", o->shape ? o->shape : "as fast as it is",
           o->tiers && o->tiers[0] ? o->tiers : "none", stk_engine_io_method(run->engine));
    printf("epoch  seconds  stall %%   from RAM %%  from SSD %%  from origin %%  origin MB  "
           "bound MB  accuracy %%\n");
    fflush(stdout);
}

static void
print_epoch(const struct run *run, const struct epoch *epoch, uint32_t number)
{
    const stk_loader_stats *stats = &epoch->stats;
    const double samples = stats->samples ? (double)stats->samples : 1.0;

    if (run->ranks.rank > 0)
        return;
    printf("%5u  %7.2f  %7.2f  %11.2f  %10.2f  %13.2f  %9.2f  %8.2f  %10.2f\n", number,
           epoch->seconds, 100 * epoch->stall_seconds / epoch->seconds,
           100 * (double)stats->tier_samples[STK_TIER_RAM] / samples,
           100 * (double)stats->tier_samples[STK_TIER_SSD] / samples,
           100 * (double)stats->tier_samples[STK_TIER_ORIGIN] / samples,
           (double)stats->origin_bytes * 1e-6, (double)stats->bound_bytes * 1e-6,
           100 * epoch->accuracy);
    fflush(stdout);
}

static int
train_all(struct run *run)
{
    const double began = now_seconds();
    float rate = LEARNING_RATE;
    int rc;

    for (uint32_t e = 0; e < run->first_epoch; e++)
        rate *= LEARNING_RATE_DECAY;
    for (uint32_t e = run->first_epoch; e < run->options.epochs; e++) {
        struct epoch *epoch = &run->epochs[e];

        rc = train_epoch(run, epoch, rate);
        if (rc == 0)
            rc = validate(run, epoch);
        epoch->stats.size = sizeof(epoch->stats);
        if (rc == 0)
            rc = stk_loader_get_stats(run->train, e, &epoch->stats);
        if (rc < 0)
            return rc;
        print_epoch(run, epoch, e + 1);
        rate *= LEARNING_RATE_DECAY;
    }
    rc = train_ckpt_finish(&run->saved, now_seconds() - began);
    if (rc < 0)
        return rc;
    run->total.size = sizeof(run->total);
    rc = stk_loader_get_stats(run->train, UINT64_MAX, &run->total);
    if (run->ranks.world > 1)
        printf("rank %u: %" PRIu64 " samples from its own memory, %" PRIu64 " from other ranks'\n",
               run->ranks.rank, run->total.tier_samples[STK_TIER_RAM],
               run->total.tier_samples[STK_TIER_PEER]);
    printf("weights %016" PRIx64 ", read from the origin %" PRIu64 " bytes, bound %" PRIu64 "\n",
           mlp_checksum(run->net), run->total.origin_bytes, run->total.bound_bytes);
    return rc;
}

/* What the run would have been told to come to, had it been asked for beforehand. */
static int
tell(struct run *run)
{
    const struct train_options *o = &run->options;
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = o->seed};
    stk_loader_opts opts = loader_opts(o);
    stk_explain_opts ask = {STK_EXPLAIN_OPTS_INIT, .loader = &opts, .tiers = o->tiers};
    double seconds = 0;
    double stall_seconds = 0;
    stk_error err;

    for (uint32_t e = 0; e < o->epochs; e++) {
        seconds += run->epochs[e].seconds;
        stall_seconds += run->epochs[e].stall_seconds;
    }
    opts.order = &order;
    ask.compute_s = (seconds - stall_seconds) / (double)run->total.batches;
    const int rc = told_ask(&run->told, run->train, run->train_data, &ask, &run->epochs[0].stats,
                            o->epochs, &err);
    if (rc < 0)
        return complain("the run cannot be told", rc, &err);
    printf("explain tells %.2f MB from the origin and %.1f %% of the time waiting, seen were %.2f "
           "and %.1f; first batch after %.2f s\n",
           (double)run->told.run.tier_bytes[STK_TIER_ORIGIN] * 1e-6,
           100 * run->told.run.stall_fraction, (double)run->total.origin_bytes * 1e-6,
           100 * stall_seconds / seconds, run->first_batch_seconds);
    return 0;
}

static int
write_json(const struct run *run)
{
    FILE *f = fopen(run->options.json, "w");

    if (!f) {
        perror(run->options.json);
        return -errno;
    }
    fprintf(f, "{\"weights\": \"%016" PRIx64 "\", \"sample_bytes\": %" PRIu64,
            mlp_checksum(run->net), run->train_bytes);
    fprintf(f, ", \"origin_bytes\": %" PRIu64 ", \"bound_bytes\": %" PRIu64,
            run->total.origin_bytes, run->total.bound_bytes);
    fprintf(f, ", \"first_batch_seconds\": %.6f, \"told_origin_bytes\": %" PRIu64,
            run->first_batch_seconds, run->told.run.tier_bytes[STK_TIER_ORIGIN]);
    fprintf(f, ", \"first_step\": %" PRIu64 ", \"epoch_steps\": %" PRIu64, run->saved.first_step,
            epoch_steps(run));
    fprintf(f, ", \"checkpoints\": {\"durable\": %" PRIu64 ", \"bytes\": %" PRIu64,
            run->saved.durable, run->saved.bytes);
    fprintf(f, ", \"durable_seconds\": %.6f, \"wait_seconds\": %.6f}, \"epochs\": [",
            run->saved.durable_seconds, run->saved.wait_seconds);
    for (uint32_t e = run->first_epoch; e < run->options.epochs; e++) {
        const struct epoch *epoch = &run->epochs[e];

        fprintf(f, "%s\n  {\"seconds\": %.6f, \"stall_seconds\": %.6f, \"loss\": %.6f",
                e > run->first_epoch ? "," : "", epoch->seconds, epoch->stall_seconds, epoch->loss);
        fprintf(f, ", \"accuracy\": %.4f, \"ram_samples\": %" PRIu64, epoch->accuracy,
                epoch->stats.tier_samples[STK_TIER_RAM]);
        fprintf(f, ", \"ssd_samples\": %" PRIu64 ", \"origin_samples\": %" PRIu64,
                epoch->stats.tier_samples[STK_TIER_SSD],
                epoch->stats.tier_samples[STK_TIER_ORIGIN]);
        fprintf(f, ", \"origin_bytes\": %" PRIu64 ", \"told_stall_fraction\": %.6f",
                epoch->stats.origin_bytes, run->told.epochs[e].stall_fraction);
        fprintf(f, ", \"told_seconds\": %.6f}", run->told.epochs[e].seconds);
    }
    fprintf(f, "\n]}\n");
    if (ferror(f) | fclose(f)) {
        fprintf(stderr, "train_fashion: %s cannot be written\n", run->options.json);
        return -EIO;
    }
    return 0;
}

static int
complain_of_memory(void)
{
    fprintf(stderr, "train_fashion: no memory\n");
    return -ENOMEM;
}

int
main(int argc, char **argv)
{
    static struct run run; /* zeroed */
    int rc;

    if (ranks_begin(&run.ranks, &argc, &argv) < 0) {
        fprintf(stderr, "train_fashion: cannot find the other ranks\n");
        return 1;
    }
    rc = train_options_parse(&run.options, argc, argv);
    if (rc < 0) {
        ranks_end(&run.ranks, 0); /* all say the same */
        return 2;
    }
    run.net = mlp_new(run.options.seed);
    rc = run.net ? open_all(&run) : complain_of_memory();
    if (rc == 0) {
        print_head(&run);
        rc = train_all(&run);
    }
    if (rc == 0 && run.ranks.world == 1)
        rc = tell(&run);
    close_all(&run);
    if (rc == 0 && run.options.json)
        rc = write_json(&run);
    mlp_free(run.net);
    ranks_end(&run.ranks, rc < 0);
    return rc < 0 ? 1 : 0;
}
