/* SPDX-License-Identifier: Apache-2.0 */
/* What the public handles are. */
#ifndef STI_API_HANDLES_H
#define STI_API_HANDLES_H

#include <stdbool.h>

#include <stoker/checkpoint.h>
#include <stoker/file.h>
#include <stoker/loader.h>

#include "checkpointer/checkpointer.h"
#include "engine/engine.h"
#include "format/dataset.h"
#include "io/out.h"
#include "loader/loader.h"

struct stk_engine {
    struct sti_engine *engine;
};

struct stk_dataset {
    struct sti_dataset *dataset;
};

struct stk_loader {
    struct sti_loader *loader;
};

struct stk_ckpt {
    struct sti_checkpointer *checkpointer;
};

struct stk_view {
    struct sti_view view;
    bool is_file; /* a plain one: without a step and checksums */
};

struct stk_file {
    struct sti_out *out;
};

#endif
