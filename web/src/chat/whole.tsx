/** A record's whole text, whatever its length: as lines in a virtual list, never as markup. */
import { useMemo, useRef } from 'react'
import { Virtualizer } from 'virtua'
import { useText } from '../i18n'
import type { LogRecord } from '../types'

const LINE_CHARS = 2_000

/** Lines of at most `LINE_CHARS`, so that one endless line doesn't become one endless row. */
function lines(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    if (line.length <= LINE_CHARS) return [line]
    const pieces: string[] = []
    for (let at = 0; at < line.length; at += LINE_CHARS) pieces.push(line.slice(at, at + LINE_CHARS))
    return pieces
  })
}

export default function WholeText({ record }: { record: LogRecord }) {
  const t = useText()
  const box = useRef<HTMLDivElement>(null)
  const text = (record.parts ?? []).map((part) => part.text).join('\n')
  const all = useMemo(() => lines(text), [text])
  return (
    <div className="space-y-2">
      <p className="flex justify-between text-sm text-soft">
        <span>{t.chars(text.length)}</span>
        <a className="text-accent underline" download={`record-${record.seq}.txt`} href={useMemo(() => URL.createObjectURL(new Blob([text], { type: 'text/plain' })), [text])}>
          {t.download}
        </a>
      </p>
      <div ref={box} tabIndex={0} role="group" aria-label={t.recordNumber(record.seq)} className="h-[65vh] overflow-auto rounded border border-line p-2 font-mono text-xs">
        <Virtualizer scrollRef={box}>
          {all.map((line, number) => (
            <div key={number} className="min-h-4 whitespace-pre-wrap [overflow-wrap:anywhere]">
              {line}
            </div>
          ))}
        </Virtualizer>
      </div>
    </div>
  )
}
