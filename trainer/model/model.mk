# trainer/model/: models and their tensor table.
libtrainer_a_SOURCES += \
	trainer/model/batchnorm.c trainer/model/batchnorm.h \
	trainer/model/graph_trial.c trainer/model/graph_trial.h \
	trainer/model/model.c trainer/model/model.h \
	trainer/model/model_gpt2.c \
	trainer/model/model_graph.c trainer/model/model_graph.h \
	trainer/model/model_kind.c trainer/model/model_kind.h \
	trainer/model/model_mlp.c \
	trainer/model/tensors.c trainer/model/tensors.h \
	trainer/model/zero_shard.h
# End of model.mk
