/* hub_id.h - checks the names of Hub repositories and of their commits.
 *
 * threads  any; pure
 * source   huggingface_hub, and the Hub's answers (docs/protocols/hf.md)
 */
#ifndef COMMON_CODEC_HUB_ID_H
#define COMMON_CODEC_HUB_ID_H

#include "common/base/slice.h"

/* A segment: letters, digits, '.', '_' and '-'. */
bool hf_is_name(struct slice s);
/* One or two of them. */
bool hf_is_id(struct slice id);
/* 40 lower-case hex digits. */
bool hf_is_commit(struct slice rev);

#endif
