// rt_models - "model.name": (ENUMERATOR, name, traits, help) for each; ew_NAME does the work
// (ew_model_parts.h). New lines go to the end: numbers stand in files.
#ifndef RT_MODELS_H
#define RT_MODELS_H

#include "runtime/config/rt_choice.h"

// clang-format off
#define RT_MODEL_MAP(XX)                                                                 \
    XX(WDL, wdl, RT_TAKES_LENGTHS, "Wide & Deep")                                        \
    XX(DFM, dfm, 0, "DeepFM")                                                            \
    XX(DCN, dcn, RT_TAKES_LENGTHS, "Deep & Cross")                                       \
    XX(DLRM, dlrm, 0, "DLRM")                                                            \
    XX(NCF, ncf, 0, "neural collaborative filtering (NeuMF)")                            \
    XX(DIN, din, RT_TAKES_SEQUENCE, "Deep Interest Network: attention over a sequence")  \
    XX(GRAPHSAGE, graphsage, RT_TAKES_NODES,                                             \
       "GraphSAGE, two layers: a node, its neighbours, and theirs")
// clang-format on

#define XX(kind, name, traits, help) RT_MODEL_##kind,
enum { RT_MODEL_MAP(XX) };
#undef XX
#define RT_MODEL_COUNT (0 RT_MODEL_MAP(RT_CHOICE_ONE))

#endif
