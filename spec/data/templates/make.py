"""Writes cases.json: chat templates in the formats of published families, conversations, and what
transformers renders. python make.py. Made with transformers 5.24.0, jinja2 3.1.6."""
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))

# Each is written here after the format that its family documents.
TEMPLATES = {
    "chatml": """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "llama2": """{%- if messages[0]['role'] == 'system' -%}
    {%- set rest = messages[1:] -%}
    {%- set system = '<<SYS>>\\n' ~ messages[0]['content'] ~ '\\n<</SYS>>\\n\\n' -%}
{%- else -%}
    {%- set rest = messages -%}
    {%- set system = '' -%}
{%- endif -%}
{%- for m in rest -%}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate user/assistant/user/assistant/...') -}}
    {%- endif -%}
    {%- if m.role == 'user' -%}
        {{- bos_token + '[INST] ' + (system if loop.first else '') + m.content.strip() + ' [/INST]' -}}
    {%- else -%}
        {{- ' ' + m.content | trim + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}""",
    "llama3": """{% set ns = namespace(first=true) %}
{% for m in messages %}
    {% set text = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' %}
    {% if ns.first %}{% set text = bos_token + text %}{% set ns.first = false %}{% endif %}
    {{ text }}
{% endfor %}
{% if add_generation_prompt %}
    {{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{% endif %}""",
    "llama3_tools": """{{- bos_token }}
{%- if tools is not none and tools is defined %}
    {{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
    {{- "Environment: ipython\\nToday Date: " ~ date_string | default("26 Jul 2024") ~ "\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- "<|eot_id|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("only single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", ' + '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message["role"] == "assistant" %}
        {%- if message.tool_calls is defined and message.tool_calls is not none %}
            {{- "[TOOL_CALLS] [" }}
            {%- for tool_call in message.tool_calls %}{%- set out = tool_call.function|tojson %}{{- out[:-1] }}{{- "}" }}{%- endfor %}
            {{- "]" + eos_token }}
        {%- else %}{{- " " + message["content"]|trim + eos_token}}{%- endif %}
    {%- else %}{{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}{%- endif %}
{%- endfor %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "phi3": """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "qwen": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\nYou may call one or more functions.\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning_content = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<\uff5ctool\u2581outputs\u2581end\uff5c>' + message['content'] + '<\uff5cend\u2581of\u2581sentence\uff5c>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{'\\n<\uff5ctool\u2581output\u2581begin\uff5c>' + message['content'] + '<\uff5ctool\u2581output\u2581end\uff5c>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c>'}}{% endif %}""",
    "vicuna": """{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + ' ' %}{% set messages = messages[1:] %}{% else %}{% set system = 'A chat. ' %}{% endif %}{{ system }}{% for m in messages %}{{ 'USER: ' ~ m['content'].strip() ~ ' ' if m['role'] == 'user' else 'ASSISTANT: ' ~ m['content'].strip() ~ eos_token }}{% endfor %}{{ 'ASSISTANT:' if add_generation_prompt }}""",
    "alpaca": """{{ '### System:\\n' + messages[0]['content'] + '\\n\\n' if messages[0]['role'] == 'system' else '' -}}
{% for m in messages if m['role'] != 'system' %}
### {{ {'user': 'Instruction', 'assistant': 'Response', 'tool': 'Input'}[m['role']] }}:
{{ m['content'] }}

{% endfor %}
{% if add_generation_prompt %}
### Response:
{% endif %}
""",
    "command_r": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'x' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}""",
    "granite": """{%- macro render(role, content, end=true) -%}
<|start_of_role|>{{ role }}<|end_of_role|>{{ content }}{% if end %}<|end_of_text|>
{% endif %}
{%- endmacro -%}
{%- if messages[0].role != 'system' %}{{- render('system', 'Today is ' ~ strftime_now('%Y-%m-%d') ~ '.') }}{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{% continue %}{% endif %}
    {{- render(m.role, m.content) }}
{%- endfor %}
{%- if add_generation_prompt %}{{- render('assistant', '', end=false) }}{%- endif %}""",
    "smollm": """{%- for m in messages -%}{%- if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + m['role'] + '
' + m['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}""",
    "parts": """{# content may be parts #}
{%- macro show(content) %}
    {%- if content is string %}{{- content }}
    {%- else %}{%- for part in content %}{%- if part.type == 'text' %}{{- part.text }}{%- elif part['type'] == 'image' %}{{- '<image>' }}{%- endif %}{%- endfor %}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
{{- loop.index ~ '/' ~ loop.length ~ ' ' ~ message.role | upper | replace('U', 'u') }}: {{ show(message.content) }}
{% if not loop.last %}{{ '-' * 3 }}{% else %}{{ ["a", "b"] | join(', ') ~ (messages | map(attribute='role') | unique | sort | list | string) }}{% endif %}

{% endfor %}
{% set x %}captured {{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 5 }}{% endset %}{{ x | length }} {{ x }}
{% raw %}{{ not run }}{% endraw %} {{ [1, 2.5, 'it\\'s', none, true, {'k': [1]}] }} {{ 'abcdef'[1:4] }} {{ 'abc'[::-1] }} {{ (1, 2)[0] }}
{{ {'b': 1, 'a': "q\\"\u00e9<"} | tojson }} {{ range(3) | list }} {{ 'x' in 'xyz' and 3 not in [1, 2] }} {{ undefined_name is defined }} {{ 'A b'.split() }} {{ 1 if false }}
{% for a, b in {'k': 1, 'l': 2}.items() %}{{ a }}={{ b }}{{ ';' if not loop.last }}{% endfor %} {{ 'Hello %s' % 'w' }} {{ 'abc'.title() }} {{ none or 'n' }} {{ (messages | first).role }}
{% for c in 'abc' %}{% if c == 'b' %}{% break %}{% endif %}{{ c }}{{ loop.nextitem }}{% else %}none{% endfor %}
    {%+ if true %}kept{% endif %}  
  {% if true -%}   trimmed   {%- endif %} end
""",
}

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather's <state> \u2014 now",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "\u6771\u4eac"]},
                   "days": {"type": "integer"}}, "required": ["city"]}}}]
SYSTEM = {"role": "system", "content": "You are  terse.\n"}
CHATS = {
    "one": [{"role": "user", "content": " Hello, \"world\"!\n"}],
    "system": [SYSTEM, {"role": "user", "content": "What is 1 < 2 & 3?"}],
    "turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello \U0001f600"},
              {"role": "user", "content": "\u00bfQu\u00e9 tal?"}, {"role": "assistant", "content": "  Fine.  "}],
    "tools": [{"role": "user", "content": "Rain?"},
              {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "a1b2c3d4e", "function": {
                  "name": "weather", "arguments": {"city": "Rome", "days": 2, "x": 1.5, "y": None}}}]},
              {"role": "tool", "content": "{\"sky\": \"clear\"}"}, {"role": "assistant", "content": "No."},
              {"role": "user", "content": "Thanks"}],
    "odd": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": ""}],
}


def render(template, messages, **variables):
    try:
        return _compile_jinja_template(template).render(messages=messages, **variables)
    except Exception as e:  # the template refuses
        return {"error": type(e).__name__, "message": str(e)}


def main():
    cases = []
    for name, template in TEMPLATES.items():
        template = template.replace("strftime_now('%Y-%m-%d')", "today")
        for chat, messages in CHATS.items():
            for prompt in (False, True):
                tools = TOOLS if chat == "tools" else None
                text = render(template, messages, tools=tools, documents=None, today="2024-07-26",
                              add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
                cases.append({"template": name, "chat": chat, "prompt": prompt,
                              "tools": bool(tools), "text": text})
        TEMPLATES[name] = template
    out = {"templates": TEMPLATES, "tools": json.dumps(TOOLS), "cases": cases,
           "chats": {k: json.dumps(v) for k, v in CHATS.items()}}
    with open(HERE + "/cases.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
