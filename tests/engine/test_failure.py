"""The cause of a server's death is found in its log. The logs are those of vLLM 0.32, shortened."""

from decodebench.engine.failure import cause_of

WORKER_FAILED = """\
(APIServer pid=1) INFO 11-30 02:38:12 [model.py:733] Resolved architecture: LlamaForCausalLM
(Worker pid=3) ERROR 11-30 02:38:40 [multiproc_executor.py:900] WorkerProc failed to start.
(Worker pid=3) ERROR 11-30 02:38:40 [multiproc_executor.py:900] Traceback (most recent call last):
(APIServer pid=1) INFO 11-30 02:38:40 [core.py:1] a line of another process in between
(Worker pid=3) ERROR 11-30 02:38:40 [multiproc_executor.py:900]   File "multiproc_executor.py", line 870, in worker_main
(Worker pid=3) ERROR 11-30 02:38:40 [multiproc_executor.py:900]     worker = WorkerProc(*args, **kwargs)
(Worker pid=3) ERROR 11-30 02:38:40 [multiproc_executor.py:900] ValueError: Available memory is less than requested.
(Worker pid=3) INFO 11-30 02:38:40 [multiproc_executor.py:850] Parent process exited, terminating worker
(EngineCore pid=2) ERROR 11-30 02:38:44 [core.py:1250] EngineCore failed to start.
(EngineCore pid=2) ERROR 11-30 02:38:44 [core.py:1250] Traceback (most recent call last):
(EngineCore pid=2) ERROR 11-30 02:38:44 [core.py:1250]   File "core.py", line 1220, in run_engine_core
(EngineCore pid=2) ERROR 11-30 02:38:44 [core.py:1250] Exception: WorkerProc initialization failed due to an exception
Traceback (most recent call last):
  File "launch.py", line 12, in <module>
    main()
  File "utils.py", line 12, in wait_for_engine_startup
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""

CHAINED = """\
Traceback (most recent call last):
  File "hub.py", line 479, in cached_files
    resolve()
huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name': '/no/such'.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "config.py", line 5, in get_config
    raise OSError(
OSError: Can't load the configuration of '/no/such'.
"""

VALIDATION = """\
(APIServer pid=9) Traceback (most recent call last):
(APIServer pid=9)   File "launch.py", line 3, in <module>
(APIServer pid=9) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(APIServer pid=9)   Value error, max_model_len (99) is greater than the derived max_model_len [type=value_error]
(APIServer pid=9)     For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""

BAD_FLAG = """\
usage: vllm serve [model_tag] [options]
vllm serve: error: unrecognized arguments: --no-such-flag
"""


def test_the_workers_exception_is_the_cause_not_the_sentences_that_point_to_it():
    assert cause_of(WORKER_FAILED) == "ValueError: Available memory is less than requested."


def test_of_a_chain_the_exception_that_was_raised_last_is_told():
    assert cause_of(CHAINED) == "OSError: Can't load the configuration of '/no/such'."


def test_a_message_of_several_lines_is_told_whole():
    cause = cause_of(VALIDATION)
    assert cause.startswith("pydantic_core._pydantic_core.ValidationError: 1 validation error")
    assert "max_model_len (99) is greater" in cause


def test_the_parsers_words_about_a_bad_flag_are_the_cause():
    assert cause_of(BAD_FLAG) == "unrecognized arguments: --no-such-flag"


def test_an_engine_that_was_killed_and_said_nothing_is_told_as_such():
    log = """\
(EngineCore pid=2) INFO 11-30 03:52:20 [core.py:402] init engine took 2.79 s
(APIServer pid=1) ERROR 11-30 03:52:35 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=1) ERROR 11-30 03:52:35 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=1) ERROR 11-30 03:52:35 [async_llm.py:906]   File "core_client.py", line 1235, in get_output_async
(APIServer pid=1) ERROR 11-30 03:52:35 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
nanobind: leaked 514 functions!
"""
    assert "died and left no exception" in cause_of(log)


def test_without_any_exception_the_last_lines_are_told():
    assert cause_of("one\ntwo\n\n") == "no exception in the log; its last lines:\none\ntwo"
    assert cause_of("") == "the log is empty"
