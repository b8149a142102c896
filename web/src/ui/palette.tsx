/** Everything by its name: commands, threads, and what was said. */
import { useQuery } from '@tanstack/react-query'
import { Dialog } from 'radix-ui'
import { type KeyboardEvent, useEffect, useId, useMemo, useState } from 'react'
import type { WorkspaceApi } from '../api'
import { useText } from '../i18n'

export interface Command {
  name: string
  keys?: string
  run: () => void
}

interface Props {
  open: boolean
  api: WorkspaceApi
  commands: Command[]
  onClose: () => void
  onThread: (thread: string) => void
  onHit: (thread: string, record: number) => void
}

interface Option {
  id: string
  group: string
  text: string
  more: string
  run: () => void
}

/** `value` some time after it last changed. */
function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return settled
}

export function Palette({ open, api, commands, onClose, onThread, onHit }: Props) {
  const t = useText()
  const list = useId()
  const [words, setWords] = useState('')
  const [at, setAt] = useState(0)
  const settled = useSettled(words.trim(), 150)
  const threads = useQuery({ queryKey: ['threads', api.base, 'palette', settled], queryFn: () => api.threads({ q: settled, limit: 8 }), enabled: open })
  const hits = useQuery({ queryKey: ['search', api.base, settled], queryFn: () => api.search(settled), enabled: open && settled.length > 0, retry: false })

  useEffect(() => {
    if (open) setWords('')
  }, [open])

  const options = useMemo<Option[]>(() => {
    const needle = words.trim().toLowerCase()
    return [
      ...commands
        .filter((one) => one.name.toLowerCase().includes(needle))
        .map((one, number) => ({ id: `c${number}`, group: t.commandsGroup, text: one.name, more: one.keys ?? '', run: one.run })),
      ...(threads.data?.threads ?? []).map((one) => ({
        id: `t${one.thread}`,
        group: t.threads,
        text: one.title || t.untitled,
        more: t.when(one.used),
        run: () => onThread(one.thread),
      })),
      ...(needle ? (hits.data?.found ?? []) : []).map((one, number) => ({
        id: `h${number}`,
        group: t.saidBefore,
        text: one.text,
        more: `${one.title || t.untitled} · ${t.when(one.at)}`,
        run: () => onHit(one.thread, one.record),
      })),
    ]
  }, [commands, threads.data, hits.data, words, t, onThread, onHit])

  useEffect(() => setAt(0), [words])
  useEffect(() => {
    document.getElementById(`${list}-${options[at]?.id ?? ''}`)?.scrollIntoView({ block: 'nearest' })
  }, [at, options, list])

  const choose = (option: Option | undefined) => {
    if (!option) return
    onClose()
    option.run()
  }
  const pressed = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault()
      setAt((now) => (options.length ? (now + (event.key === 'ArrowDown' ? 1 : options.length - 1)) % options.length : 0))
    } else if (event.key === 'Enter') {
      event.preventDefault()
      choose(options[at])
    }
  }
  return (
    <Dialog.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Dialog.Portal>
        <Dialog.Overlay className="fixed inset-0 z-40 bg-black/40" />
        <Dialog.Content aria-describedby={undefined} className="fixed top-[12vh] left-1/2 z-50 flex max-h-[70vh] w-[min(40rem,calc(100vw-1.5rem))] -translate-x-1/2 flex-col rounded-lg border border-line bg-page shadow-xl">
          <Dialog.Title className="sr-only">{t.palette}</Dialog.Title>
          <input
            role="combobox"
            aria-expanded="true"
            aria-controls={list}
            aria-activedescendant={options[at] ? `${list}-${options[at].id}` : undefined}
            aria-label={t.palettePlaceholder}
            placeholder={t.palettePlaceholder}
            className="border-b border-line bg-transparent px-4 py-3 outline-none"
            value={words}
            onChange={(event) => setWords(event.target.value)}
            onKeyDown={pressed}
          />
          <div id={list} role="listbox" aria-label={t.palette} className="overflow-y-auto p-1" tabIndex={-1}>
            {options.map((option, number) => (
              <div
                key={option.id}
                id={`${list}-${option.id}`}
                role="option"
                aria-selected={number === at}
                onClick={() => choose(option)}
                onMouseMove={() => setAt(number)}
                className={`cursor-pointer rounded px-3 py-1.5 text-sm ${number === at ? 'bg-raised' : ''}`}
              >
                <p className="truncate">{option.text}</p>
                <p className="truncate text-xs text-soft">
                  {option.group}
                  {option.more && ` · ${option.more}`}
                </p>
              </div>
            ))}
            {options.length === 0 && <p className="p-4 text-center text-sm text-soft">{t.nothingFound}</p>}
          </div>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  )
}
