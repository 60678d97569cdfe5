/* nearest.h - finds the word of a list that is most similar to a misspelled or abbreviated one. */
#ifndef COMMON_CODEC_NEAREST_H
#define COMMON_CODEC_NEAREST_H

#include "common/base/slice.h"

/* NULL when none is similar. */
const char *nearest_word(const char *const *words, size_t count, struct slice word);

#endif
