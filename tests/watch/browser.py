# browser - a page in a real browser, by the protocol that its developers' tools speak, over a pipe.
import json
import os
import select
import subprocess
import time


class Browser:
    def __init__(self, program, folder):
        command_in, self.commands = os.pipe()
        self.answers, answers_out = os.pipe()

        def place():  # the browser reads 3 and writes 4
            os.dup2(command_in, 63)
            os.dup2(answers_out, 64)
            os.dup2(63, 3)
            os.dup2(64, 4)

        self.process = subprocess.Popen(
            [program, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
             '--no-first-run', '--remote-debugging-pipe', f'--user-data-dir={folder}', 'about:blank'],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_in)
        os.close(answers_out)
        self.number, self.text, self.session, self.events = 0, b'', None, []
        target = self.ask('Target.createTarget', url='about:blank')['targetId']
        self.session = self.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network', 'Performance'):
            self.ask(domain + '.enable')

    def receive(self, limit_s):
        end = time.monotonic() + limit_s
        while b'\0' not in self.text:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError('the browser says nothing')
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise EOFError('the browser is gone')
            self.text += part
        one, self.text = self.text.split(b'\0', 1)
        return json.loads(one)

    def ask(self, method, **parameters):
        self.number += 1
        question = {'id': self.number, 'method': method, 'params': parameters}
        if self.session:
            question['sessionId'] = self.session
        os.write(self.commands, json.dumps(question).encode() + b'\0')
        while True:
            answer = self.receive(30)
            if answer.get('id') == self.number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']
            self.events.append(answer)

    def value(self, expression):
        result = self.ask('Runtime.evaluate', expression=expression, returnByValue=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(f'{expression}: {result["exceptionDetails"]}')
        return result['result'].get('value')

    def wait_until(self, expression, limit_s):
        end = time.monotonic() + limit_s
        while not self.value(expression):
            if time.monotonic() > end:
                raise AssertionError(f'not within {limit_s} s: {expression}')
            time.sleep(0.2)

    def heap_bytes(self):
        self.ask('HeapProfiler.collectGarbage')
        metrics = self.ask('Performance.getMetrics')['metrics']
        return next(one['value'] for one in metrics if one['name'] == 'JSHeapUsedSize')

    # What went wrong in the page, and what it asked of anybody else than the run.
    def complaints(self, address):
        self.value('1')
        found = []
        for event in self.events:
            method, parameters = event.get('method', ''), event.get('params', {})
            if method == 'Runtime.exceptionThrown':
                found.append(parameters['exceptionDetails']['text'])
            if method == 'Log.entryAdded' and parameters['entry']['source'] in ('security', 'javascript'):
                found.append(parameters['entry']['text'])
            if method == 'Network.requestWillBeSent':
                url = parameters['request']['url']
                if not url.startswith((f'http://{address}/', 'data:', 'about:')):
                    found.append(f'asked for {url}')
        return found

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
