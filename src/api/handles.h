/* SPDX-License-Identifier: Apache-2.0 */
/* What the public handles are. */
#ifndef STI_API_HANDLES_H
#define STI_API_HANDLES_H

#include <stoker/loader.h>

#include "engine/engine.h"
#include "format/dataset.h"
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

#endif
