/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making views. What a view is as a whole (sums, largest samples, fingerprint, classes)
 * is worked out once, here, into the head that a data set of its own has from its index;
 * after that dataset.c only follows a sample down to the data set that has it. Ids of a
 * view stay what they are in every epoch, so caches may know samples by them; therefore a
 * mix is a concatenation whose weights are in the order of its epochs, not in its ids.
 *
 * Invariant: first_id are running sums of the children's samples, and what a view refers
 * to lives longer than the view (counted in n_users, which only asserts). Any thread, one
 * view at a time.
 */
#include "format/view.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/dataset_internal.h"
#include "format/hash.h"
#include "format/sizes.h"

enum { HASH_SUBSET = 1, HASH_CONCAT = 2, HASH_MIX = 3 }; /* with which a fingerprint begins */

void
sti_view_free(struct sti_view *view)
{
    if (!view)
        return;
    for (uint32_t at = 0; view->children && at < view->n; at++)
        (void)__atomic_sub_fetch(&view->children[at]->n_users, 1, __ATOMIC_RELAXED);
    sti_mem_free(view->children);
    sti_mem_free(view->first_id);
    sti_mem_free(view->first_file);
    sti_mem_free(view->ids);
    sti_mem_free(view->first_draw);
    sti_mem_free(view);
}

const struct sti_draws *
sti_dataset_draws(const struct sti_dataset *dataset)
{
    return dataset->view && dataset->view->first_draw ? &dataset->view->draws : NULL;
}

static int
no_memory(stk_error *err)
{
    return sti_error_set(err, -ENOMEM, "no memory for the view");
}

/* ---- what all views have ----------------------------------------------------------- */

static bool
is_same_shape(const struct sti_index_head *a, const struct sti_index_head *b)
{
    return a->dims == b->dims && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0 &&
           memcmp(a->dtype, b->dtype, sizeof(a->dtype)) == 0;
}

static bool
is_same_classes(const struct sti_dataset *a, const struct sti_dataset *b)
{
    if (a->index.head.classes != b->index.head.classes)
        return false;
    for (uint32_t at = 0; at < a->index.head.classes; at++) {
        const char *left = sti_dataset_class_name(a, at), *right = sti_dataset_class_name(b, at);

        if (!left || !right || strcmp(left, right) != 0)
            return false;
    }
    return true;
}

static int
check_fields(const struct sti_dataset *first, const struct sti_dataset *other, uint32_t number,
             stk_error *err)
{
    uint32_t n = sti_dataset_fields(first);

    if (n != sti_dataset_fields(other))
        return sti_error_set(err, -EINVAL,
                             "data set 0 has %" PRIu32 " fields, data set %" PRIu32 " has %" PRIu32
                             "; choose the same with the option fields",
                             n, number, sti_dataset_fields(other));
    for (uint32_t at = 0; n > 1 && at < n; at++)
        if (strcmp(sti_dataset_field_name(first, at), sti_dataset_field_name(other, at)) != 0)
            return sti_error_set(err, -EINVAL,
                                 "field %" PRIu32 " of data set 0 is \"%s\", of data set %" PRIu32
                                 " \"%s\"; choose the same with the option fields",
                                 at, sti_dataset_field_name(first, at), number,
                                 sti_dataset_field_name(other, at));
    return 0;
}

/* The head, as far as it does not depend on which samples there are: what the children
 * share. */
static int
share_head(struct sti_dataset *made, stk_error *err)
{
    const struct sti_view *view = made->view;
    struct sti_index_head *head = &made->index.head;
    const struct sti_dataset *first = view->children[0];

    *head = first->index.head;
    for (uint32_t at = 1; at < view->n; at++) {
        const struct sti_dataset *other = view->children[at];
        int rc = check_fields(first, other, at, err);

        if (rc < 0)
            return rc;
        if (other->index.head.format != head->format)
            head->format = STK_FORMAT_AUTO;
        if (!is_same_shape(head, &other->index.head)) {
            head->dims = 0;
            memset(head->shape, 0, sizeof(head->shape));
            memset(head->dtype, 0, sizeof(head->dtype));
        }
        if (head->classes > 0 && !is_same_classes(first, other))
            head->classes = 0;
    }
    return 0;
}

static int
put_sizes(struct sti_index_head *head, struct sti_sizes *sizes, int rc, stk_error *err)
{
    sti_sizes_end(sizes);
    if (rc < 0)
        return sti_error_set(err, rc, "the samples of the view add up to more than 2^63 bytes");
    head->samples = sizes->samples;
    head->n_bytes = sizes->n_bytes;
    head->max_bytes = sizes->max_bytes;
    head->uniform_bytes = sizes->uniform_bytes;
    memcpy(head->largest, sizes->largest, sizeof(head->largest));
    return 0;
}

/* Adds samples of a child: all of one size at once, else one by one. */
static int
add_sizes(struct sti_sizes *sizes, const struct sti_dataset *child, uint64_t first, uint64_t n)
{
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(child);
    int rc = 0;

    if (uniform_bytes > 0)
        return sti_sizes_add(sizes, uniform_bytes, n);
    for (uint64_t at = 0; rc == 0 && at < n; at++)
        rc = sti_sizes_add(sizes, sti_dataset_length(child, first + at), 1);
    return rc;
}

/* A view over children, without its head. Returns owned, NULL without memory. */
static struct sti_dataset *
new_view(struct sti_dataset *const *children, uint32_t n)
{
    struct sti_dataset *made = sti_mem_new(1, sizeof(*made));
    struct sti_view *view = sti_mem_new(1, sizeof(*view));

    if (!made || !view) {
        sti_mem_free(made);
        sti_mem_free(view);
        return NULL;
    }
    made->view = view;
    made->dir_fd = -1;
    view->first_id = sti_mem_new(n + UINT64_C(1), sizeof(*view->first_id));
    view->first_file = sti_mem_new(n, sizeof(*view->first_file));
    view->children = sti_mem_new(n, sizeof(void *));
    if (!view->first_id || !view->first_file || !view->children) {
        sti_dataset_close(made);
        return NULL;
    }
    view->n = n;
    for (uint32_t at = 0; at < n; at++) {
        view->children[at] = children[at];
        (void)__atomic_add_fetch(&children[at]->n_users, 1, __ATOMIC_RELAXED);
        view->first_file[at] = made->n_files;
        made->n_files += children[at]->n_files;
    }
    return made;
}

static void
set_fingerprint(struct sti_dataset *made, uint64_t hash)
{
    made->identity = hash;
    made->view->identity_start = hash;
    for (uint32_t at = 0; at < made->view->n; at++) {
        hash = sti_hash_u64(hash, sti_dataset_fingerprint(made->view->children[at]));
        made->identity =
            sti_hash_u64(made->identity, sti_dataset_identity(made->view->children[at]));
    }
    made->index.head.fingerprint = hash ? hash : 1;
}

/* ---- subset ------------------------------------------------------------------------ */

static int
fill_subset(struct sti_dataset *made, const uint64_t *ids, uint64_t first, uint64_t n,
            stk_error *err)
{
    struct sti_view *view = made->view;
    const struct sti_dataset *child = view->children[0];
    uint64_t hash = sti_hash_u64(sti_hash_u64(STI_HASH_START, HASH_SUBSET), n);
    struct sti_sizes sizes;
    int rc = 0;

    view->first = first;
    view->first_id[1] = n;
    if (sti_sizes_begin(&sizes, n) < 0)
        return no_memory(err);
    if (ids) {
        view->ids = sti_mem_new(n, sizeof(*ids));
        if (!view->ids)
            rc = -ENOMEM;
        for (uint64_t at = 0; rc == 0 && at < n; at++) {
            view->ids[at] = ids[at];
            hash = sti_hash_u64(hash, ids[at]);
            rc = sti_sizes_add(&sizes, sti_dataset_length(child, ids[at]), 1);
        }
    } else {
        hash = sti_hash_u64(hash, first);
        rc = add_sizes(&sizes, child, first, n);
    }
    if (rc == -ENOMEM) {
        sti_sizes_end(&sizes);
        return no_memory(err);
    }
    rc = put_sizes(&made->index.head, &sizes, rc, err);
    set_fingerprint(made, hash);
    return rc;
}

static int
check_subset(const struct sti_dataset *child, const uint64_t *ids, uint64_t first, uint64_t n,
             stk_error *err)
{
    uint64_t count = sti_dataset_count(child);

    if (sti_dataset_draws(child))
        return sti_error_set(err, -EINVAL, "a mix has no subset; make a mix of subsets");
    if (n == 0 || (ids && n > STI_DATASET_SAMPLES_MAX))
        return sti_error_set(err, -EINVAL, "a subset of %" PRIu64 " samples; 1 .. 2^48 is allowed",
                             n);
    if (!ids && (first >= count || n > count - first))
        return sti_error_set(err, -ERANGE,
                             "%" PRIu64 " samples from %" PRIu64 " on of a data set of %" PRIu64, n,
                             first, count);
    for (uint64_t at = 0; ids && at < n; at++)
        if (ids[at] >= count)
            return sti_error_set_sample(err, -ERANGE, ids[at], NULL,
                                        "id %" PRIu64 " of the subset: the data set has %" PRIu64
                                        " samples",
                                        ids[at], count);
    return 0;
}

int
sti_view_subset(struct sti_dataset **ret_dataset, struct sti_dataset *child, const uint64_t *ids,
                uint64_t first, uint64_t n, stk_error *err)
{
    int rc = check_subset(child, ids, first, n, err);

    if (rc < 0)
        return rc;
    struct sti_dataset *made = new_view(&child, 1);
    if (!made)
        return no_memory(err);
    rc = share_head(made, err);
    if (rc == 0)
        rc = fill_subset(made, ids, first, n, err);
    if (rc < 0) {
        sti_dataset_close(made);
        return rc;
    }
    *ret_dataset = made;
    return 0;
}

/* ---- concatenation ----------------------------------------------------------------- */

static int
fill_concat(struct sti_dataset *made, stk_error *err)
{
    struct sti_view *view = made->view;
    struct sti_sizes sizes;
    uint64_t samples = 0;
    int rc = 0;

    for (uint32_t at = 0; at < view->n; at++) {
        samples += sti_dataset_count(view->children[at]);
        if (samples > STI_DATASET_SAMPLES_MAX)
            return sti_error_set(err, -E2BIG, "the view has more than 2^48 samples");
        view->first_id[at + 1] = samples;
    }
    if (sti_sizes_begin(&sizes, samples) < 0)
        return no_memory(err);
    for (uint32_t at = 0; rc == 0 && at < view->n; at++)
        rc = add_sizes(&sizes, view->children[at], 0, sti_dataset_count(view->children[at]));
    rc = put_sizes(&made->index.head, &sizes, rc, err);
    set_fingerprint(made, sti_hash_u64(STI_HASH_START, HASH_CONCAT));
    return rc;
}

int
sti_view_concat(struct sti_dataset **ret_dataset, struct sti_dataset *const *children, uint32_t n,
                stk_error *err)
{
    if (n == 0 || n > STI_VIEW_CHILDREN_MAX)
        return sti_error_set(err, -EINVAL, "a view of %" PRIu32 " data sets; 1 .. %u is allowed", n,
                             STI_VIEW_CHILDREN_MAX);
    for (uint32_t at = 0; at < n; at++)
        if (sti_dataset_draws(children[at]))
            return sti_error_set(
                err, -EINVAL, "data set %" PRIu32 " is a mix, which cannot be part of a view", at);
    struct sti_dataset *made = new_view(children, n);
    if (!made)
        return no_memory(err);
    int rc = share_head(made, err);
    if (rc == 0)
        rc = fill_concat(made, err);
    if (rc < 0) {
        sti_dataset_close(made);
        return rc;
    }
    *ret_dataset = made;
    return 0;
}

/* ---- mix --------------------------------------------------------------------------- */

static int
fill_mix(struct sti_dataset *made, const double *weights, uint64_t samples, stk_error *err)
{
    struct sti_view *view = made->view;
    uint64_t hash = sti_hash_u64(STI_HASH_START, HASH_MIX);

    if (samples == 0)
        samples = sti_dataset_count(made);
    if (samples > STI_DATASET_SAMPLES_MAX)
        return sti_error_set(err, -EINVAL, "samples %" PRIu64 " is not in 1 .. 2^48", samples);
    view->first_draw = sti_mem_new(view->n + UINT64_C(1), sizeof(*view->first_draw));
    if (!view->first_draw)
        return no_memory(err);
    uint32_t bad = sti_draws_divide(view->first_draw, weights, view->n, samples);
    if (bad < view->n)
        return sti_error_set(err, -EINVAL,
                             "the weight %g of data set %" PRIu32
                             " is not above 0, or gives it none of the %" PRIu64
                             " samples of an epoch",
                             weights[bad], bad, samples);
    view->draws = (struct sti_draws){
        .n_parts = view->n, .first_id = view->first_id, .first_draw = view->first_draw};
    for (uint32_t at = 1; at <= view->n; at++)
        hash = sti_hash_u64(hash, view->first_draw[at]);
    set_fingerprint(made, hash);
    return 0;
}

int
sti_view_mix(struct sti_dataset **ret_dataset, struct sti_dataset *const *children,
             const double *weights, uint32_t n, uint64_t samples, stk_error *err)
{
    struct sti_dataset *made = NULL;
    int rc = sti_view_concat(&made, children, n, err);

    if (rc < 0)
        return rc;
    assert(made);
    rc = fill_mix(made, weights, samples, err);
    if (rc < 0) {
        sti_dataset_close(made);
        return rc;
    }
    *ret_dataset = made;
    return 0;
}
