/* SPDX-License-Identifier: Apache-2.0 */
#include "train_options.h"

#include <stoker/stoker.h>

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlp.h"

static int
usage(int letter, const char *value)
{
    if (letter && letter != '?')
        fprintf(stderr, "train_fashion: %s is out of range or not known\n", value);
    fprintf(
        stderr,
        "usage: train_fashion --data DIR [--epochs N] [--batch B] [--seed S]\n"
        "         [--tiers \"ram:64M\"] [--policy none|pin|lru|next-use] [--staging-batches N]\n"
        "         [--shape \"rbps=40M riops=4000 rlat=500us\"] [--ssd-shape \"rbps=120M\"]\n"
        "         [--io-method uring|sync] [--json FILE] [--checkpoints DIR]\n"
        "DIR is what fashion_layout makes. With --checkpoints every step is saved there, and\n"
        "training goes on from the newest checkpoint that is there already. At most %u epochs, "
        "batches of at most %u.\n",
        (unsigned)TRAIN_EPOCHS_MAX, (unsigned)MLP_BATCH_MAX);
    return -EINVAL;
}

/* Reads a whole number in min .. max; returns 0 or -EINVAL. */
static int
parse_number(const char *text, unsigned long min, unsigned long max, uint32_t *ret_value)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return -EINVAL;
    *ret_value = (uint32_t)value;
    return 0;
}

static int
parse_policy(const char *text, uint32_t *ret_policy)
{
    static const char *const names[] = {"", "none", "pin", "lru", "next-use"};

    for (uint32_t k = STK_POLICY_NONE; k <= STK_POLICY_NEXT_USE; k++) {
        if (strcmp(text, names[k]) == 0) {
            *ret_policy = k;
            return 0;
        }
    }
    return -EINVAL;
}

static int
parse_option(struct train_options *o, int letter, const char *text)
{
    switch (letter) {
    case 'd':
        o->data = text;
        return 0;
    case 't':
        o->tiers = text;
        return 0;
    case 's':
        o->shape = text;
        return 0;
    case 'S':
        o->ssd_shape = text;
        return 0;
    case 'i':
        o->io_method = text;
        return 0;
    case 'j':
        o->json = text;
        return 0;
    case 'c':
        o->checkpoints = text;
        return 0;
    case 'p':
        return parse_policy(text, &o->policy);
    case 'e':
        return parse_number(text, 1, TRAIN_EPOCHS_MAX, &o->epochs);
    case 'b':
        return parse_number(text, 1, MLP_BATCH_MAX, &o->batch);
    case 'g':
        return parse_number(text, 2, 65536, &o->staging_batches);
    case 'r':
        return parse_number(text, 0, INT32_MAX, &o->seed);
    default:
        return -EINVAL;
    }
}

int
train_options_parse(struct train_options *o, int argc, char **argv)
{
    static const struct option known[] = {
        {"data", required_argument, NULL, 'd'},
        {"epochs", required_argument, NULL, 'e'},
        {"batch", required_argument, NULL, 'b'},
        {"tiers", required_argument, NULL, 't'},
        {"policy", required_argument, NULL, 'p'},
        {"shape", required_argument, NULL, 's'},
        {"ssd-shape", required_argument, NULL, 'S'},
        {"io-method", required_argument, NULL, 'i'},
        {"staging-batches", required_argument, NULL, 'g'},
        {"json", required_argument, NULL, 'j'},
        {"checkpoints", required_argument, NULL, 'c'},
        {"seed", required_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    int letter;

    *o = (struct train_options){.epochs = 5, .batch = 64, .seed = 1};
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (parse_option(o, letter, optarg) < 0)
            return usage(letter, optarg);
    return o->data && optind == argc ? 0 : usage(0, NULL);
}
