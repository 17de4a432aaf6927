/* SPDX-License-Identifier: Apache-2.0 */
/* Error names and the version, exported. */
#include <stoker/types.h>

#include "base/error.h"

#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

const char *
stk_strerror(int code)
{
    return sti_error_text(code);
}

const char *
stk_version(void)
{
    return TEXT(STK_VERSION_MAJOR) "." TEXT(STK_VERSION_MINOR) "." TEXT(STK_VERSION_PATCH);
}
