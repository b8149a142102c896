/** Where questions are typed. The text is kept until the server has it. */
import { Paperclip, SendHorizontal, Square, X } from 'lucide-react'
import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react'
import { useText } from '../i18n'
import { Button, IconButton } from '../ui/basics'

const LONG_CHARS = 8_000
const LONG_LINES = 200
const COMMANDS = ['/compact', '/clear', '/remember', '/context', '/task', '/files', '/export'] as const

export type Command = (typeof COMMANDS)[number]

interface Props {
  draftKey: string
  busy: boolean
  /** Rejects where the message didn't arrive. */
  onSend: (text: string) => Promise<void>
  onStop: () => void
  onFiles: (files: { file: Blob; name: string }[]) => Promise<void>
  onCommand: (command: Command, rest: string) => void
  onEditLast: () => void
}

function draft(key: string): string {
  return sessionStorage.getItem(key) ?? ''
}

export function Composer({ draftKey, busy, onSend, onStop, onFiles, onCommand, onEditLast }: Props) {
  const t = useText()
  const [text, setText] = useState(() => draft(draftKey))
  const [pasted, setPasted] = useState<string | null>(null)
  const [over, setOver] = useState(false)
  const [sending, setSending] = useState(false)
  const area = useRef<HTMLTextAreaElement>(null)
  const picker = useRef<HTMLInputElement>(null)

  useEffect(() => {
    setText(draft(draftKey))
  }, [draftKey])

  const write = (value: string) => {
    setText(value)
    if (value) sessionStorage.setItem(draftKey, value)
    else sessionStorage.removeItem(draftKey)
  }

  const send = async () => {
    const said = text
    if (!said.trim() || sending) return
    const command = COMMANDS.find((one) => said === one || said.startsWith(one + ' '))
    if (command) {
      write('')
      onCommand(command, said.slice(command.length).trim())
      return
    }
    setSending(true)
    write('')
    try {
      await onSend(said)
    } catch {
      // Told where it failed; what was typed meanwhile stays behind it.
      write(said + (area.current?.value ? '\n' + area.current.value : ''))
    } finally {
      setSending(false)
      area.current?.focus()
    }
  }

  const pressed = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing || event.keyCode === 229) return
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault()
      void send()
    } else if (event.key === 'Escape' && busy && !text) onStop()
    else if (event.key === 'ArrowUp' && !text) {
      event.preventDefault()
      onEditLast()
    }
  }

  const paste = (event: ClipboardEvent) => {
    const files = [...event.clipboardData.files]
    if (files.length > 0) {
      event.preventDefault()
      void onFiles(files.map((file) => ({ file, name: file.name })))
      return
    }
    const value = event.clipboardData.getData('text/plain')
    if (value.length > LONG_CHARS || value.split('\n', LONG_LINES + 1).length > LONG_LINES) {
      event.preventDefault()
      setPasted(value)
    }
  }

  const drop = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    void onFiles([...event.dataTransfer.files].map((file) => ({ file, name: file.name })))
  }

  const attach = async () => {
    if (pasted === null) return
    const name = `pasted-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, '-')}.txt`
    await onFiles([{ file: new Blob([pasted], { type: 'text/plain' }), name }])
    setPasted(null)
    area.current?.focus()
  }

  const hints = text.startsWith('/') && !text.includes(' ') ? COMMANDS.filter((one) => one.startsWith(text) && one !== text) : []
  return (
    <div
      className="mx-auto w-full max-w-[804px] px-3 pb-3"
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      {pasted !== null && (
        <div className="mb-2 flex flex-wrap items-center gap-2 rounded-md border border-line bg-panel px-3 py-2 text-sm" role="group" aria-label={t.pastedText}>
          <span className="flex-1">{t.pastedLong(pasted.length)}</span>
          <Button look="main" autoFocus onClick={() => void attach()}>
            {t.attachAsFile}
          </Button>
          <Button
            onClick={() => {
              write(text + pasted)
              setPasted(null)
              area.current?.focus()
            }}
          >
            {t.pasteAnyway}
          </Button>
          <IconButton name={t.close} onClick={() => setPasted(null)}>
            <X size={14} />
          </IconButton>
        </div>
      )}
      {hints.length > 0 && (
        <div className="mb-2 flex flex-wrap gap-1">
          {hints.map((one) => (
            <Button key={one} look="quiet" onClick={() => { write(one + ' '); area.current?.focus() }}>
              {one} <span className="text-xs">{t.commands[one]}</span>
            </Button>
          ))}
        </div>
      )}
      <div className={`flex items-end gap-1 rounded-2xl border bg-page p-1.5 shadow-sm focus-within:border-accent ${over ? 'border-accent bg-raised' : 'border-line'}`}>
        <IconButton name={t.attachFile} onClick={() => picker.current?.click()}>
          <Paperclip size={17} />
        </IconButton>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          data-testid="file-input"
          onChange={(event) => {
            void onFiles([...(event.target.files ?? [])].map((file) => ({ file, name: file.name })))
            event.target.value = ''
          }}
        />
        <textarea
          ref={area}
          data-composer
          value={text}
          rows={1}
          aria-label={t.ask}
          placeholder={t.askPlaceholder}
          onChange={(event) => write(event.target.value)}
          onKeyDown={pressed}
          onPaste={paste}
          className="max-h-[40vh] min-h-8 flex-1 resize-none bg-transparent px-1 py-1 outline-none [field-sizing:content]"
        />
        {busy && (
          <IconButton name={t.stop} onClick={onStop} className="bg-raised !text-ink">
            <Square size={14} fill="currentColor" />
          </IconButton>
        )}
        <IconButton name={t.send} disabled={!text.trim() || sending} onClick={() => void send()} className="bg-accent !text-accent-ink hover:opacity-90">
          <SendHorizontal size={16} />
        </IconButton>
      </div>
    </div>
  )
}
