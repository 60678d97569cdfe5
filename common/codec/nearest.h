/* nearest.h - the word that was meant: of a list, the one written most like what somebody wrote. */
#ifndef COMMON_CODEC_NEAREST_H
#define COMMON_CODEC_NEAREST_H

#include "common/base/slice.h"

/* NULL when none is near. */
const char *nearest_word(const char *const *words, size_t count, struct slice word);

#endif
