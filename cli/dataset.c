/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets of a command line: several paths are one behind the other, or mixed by
 * weights; a subset is a range of that. */
#include "dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
refuse(stk_error *err, const char *text)
{
    (void)snprintf(err->message, sizeof(err->message), "%s", text);
    err->path[0] = '\0';
    err->code = -EINVAL;
    return -EINVAL;
}

/* A number in decimal digits up to the end of the text or a character that ends it. */
static bool
parse_number(const char *text, char end, uint64_t *ret_value, const char **ret_behind)
{
    char *behind;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &behind, 10);
    if (errno != 0 || *behind != end)
        return false;
    *ret_value = value;
    *ret_behind = behind;
    return true;
}

/* FIRST:END, each of which may be left out. */
static int
take_subset(struct cli_dataset *open, const char *subset, stk_error *err)
{
    stk_dataset_info info = {STK_DATASET_INFO_INIT};
    uint64_t first = 0, end;
    const char *at = subset;

    (void)stk_dataset_get_info(open->dataset, &info); /* the size is right */
    end = info.samples;
    if ((*at != ':' && !parse_number(at, ':', &first, &at)) ||
        (at[1] != '\0' && !parse_number(at + 1, '\0', &end, &at)))
        return refuse(err, "--subset: FIRST:END is wanted, two numbers of which either may be "
                           "left out");
    if (first >= end || end > info.samples)
        return refuse(err, "--subset: FIRST must be below END, and END at most the samples there "
                           "are");
    stk_dataset *whole = open->dataset;
    int rc = stk_dataset_range(&open->dataset, whole, first, end - first, err);
    if (rc == 0)
        open->joined = whole;
    return rc;
}

/* W,W,...: one weight for each part. */
static int
take_weights(struct cli_dataset *open, const char *weights, stk_error *err)
{
    double values[CLI_MAX_DATASETS];
    const char *at = weights;

    for (size_t part = 0; part < open->n_parts; part++) {
        char *behind;

        values[part] = strtod(at, &behind);
        if (behind == at || *behind != (part + 1 < open->n_parts ? ',' : '\0'))
            return refuse(err, "--weights: one number for each data set is wanted, as 2,1,0.5");
        at = behind + 1;
    }
    return stk_dataset_mix(&open->dataset, open->parts, values, (uint32_t)open->n_parts, 0, err);
}

int
cli_dataset_open(struct cli_dataset *open, stk_engine *engine,
                 const struct cli_dataset_request *request, stk_error *err)
{
    int rc = 0;

    *open = (struct cli_dataset){0};
    if (request->weights && request->subset)
        return refuse(err, "--subset and --weights exclude each other: a mix has no subset");
    for (size_t at = 0; at < request->n_paths; at++) {
        rc = stk_dataset_open(&open->parts[at], engine, request->paths[at], &request->opts, err);
        if (rc < 0)
            return rc;
        open->n_parts++;
    }
    if (request->weights)
        rc = take_weights(open, request->weights, err);
    else if (open->n_parts > 1)
        rc = stk_dataset_concat(&open->dataset, open->parts, (uint32_t)open->n_parts, err);
    else
        open->dataset = open->parts[--open->n_parts];
    if (rc == 0 && request->subset)
        rc = take_subset(open, request->subset, err);
    return rc;
}

void
cli_dataset_close(struct cli_dataset *open)
{
    stk_dataset_close(open->dataset);
    stk_dataset_close(open->joined);
    for (size_t at = 0; at < open->n_parts; at++)
        stk_dataset_close(open->parts[at]);
    *open = (struct cli_dataset){0};
}
