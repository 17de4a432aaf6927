/* SPDX-License-Identifier: Apache-2.0 */
/* What the library would have told of a run beforehand, beside what it came to. */
#ifndef EXAMPLES_TOLD_H
#define EXAMPLES_TOLD_H

#include <stoker/stoker.h>

#include "train_options.h"

struct told {
    stk_explained epochs[TRAIN_EPOCHS_MAX];
    stk_explained run;
};

/*
 * Has a run told that was just made: by its loader's options and tiers, by what the
 * loader has learned of its devices, and by the seconds that a batch's computing took.
 * first: the first epoch's statistics; they say whether the SSDs were warm. n_epochs: 1
 * to TRAIN_EPOCHS_MAX. Returns 0 or an error of stk_explain(), told in err.
 */
int
told_ask(struct told *told, stk_loader *loader, const stk_dataset *data,
         const stk_explain_opts *opts, const stk_loader_stats *first, uint32_t n_epochs,
         stk_error *err);

#endif
