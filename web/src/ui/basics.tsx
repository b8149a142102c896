/** Small parts used everywhere: buttons, dialogs, menus. */
import { X } from 'lucide-react'
import { Dialog, DropdownMenu } from 'radix-ui'
import type { ButtonHTMLAttributes, ReactNode } from 'react'
import { useText } from '../i18n'

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { look?: 'plain' | 'main' | 'bad' | 'quiet' }

const LOOKS = {
  plain: 'border border-line bg-page hover:bg-raised',
  main: 'bg-accent text-accent-ink hover:opacity-90',
  bad: 'border border-bad text-bad hover:bg-bad-back',
  quiet: 'text-soft hover:bg-raised hover:text-ink',
}

export function Button({ look = 'plain', className = '', ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      className={`inline-flex min-h-8 items-center justify-center gap-1.5 rounded-md px-2.5 text-sm disabled:opacity-50 disabled:hover:bg-transparent ${LOOKS[look]} ${className}`}
      {...rest}
    />
  )
}

/** A button that shows only a picture; its name is read out and shown on hover. */
export function IconButton({ name, className = '', ...rest }: ButtonHTMLAttributes<HTMLButtonElement> & { name: string }) {
  return (
    <button
      type="button"
      aria-label={name}
      title={name}
      className={`inline-flex size-8 shrink-0 items-center justify-center rounded-md text-soft hover:bg-raised hover:text-ink disabled:opacity-40 ${className}`}
      {...rest}
    />
  )
}

interface ModalProps {
  open: boolean
  onClose: () => void
  title: string
  children: ReactNode
  wide?: boolean
}

export function Modal({ open, onClose, title, children, wide = false }: ModalProps) {
  const t = useText()
  return (
    <Dialog.Root open={open} onOpenChange={(now) => !now && onClose()}>
      <Dialog.Portal>
        <Dialog.Overlay className="fixed inset-0 z-40 bg-black/40" />
        <Dialog.Content
          aria-describedby={undefined}
          className={`fixed top-1/2 left-1/2 z-50 flex max-h-[90vh] w-[calc(100vw-1.5rem)] -translate-x-1/2 -translate-y-1/2 flex-col rounded-lg border border-line bg-page shadow-xl ${wide ? 'max-w-5xl' : 'max-w-lg'}`}
        >
          <div className="flex items-center gap-2 border-b border-line px-4 py-2">
            <Dialog.Title className="min-w-0 flex-1 truncate font-semibold">{title}</Dialog.Title>
            <Dialog.Close asChild>
              <IconButton name={t.close}>
                <X size={16} />
              </IconButton>
            </Dialog.Close>
          </div>
          <div className="min-h-0 flex-1 overflow-auto p-4" tabIndex={0} role="group" aria-label={title}>
            {children}
          </div>
        </Dialog.Content>
      </Dialog.Portal>
    </Dialog.Root>
  )
}

export interface MenuItem {
  label: string
  onSelect: () => void
  bad?: boolean
}

export function Menu({ trigger, items }: { trigger: ReactNode; items: MenuItem[] }) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          align="end"
          sideOffset={4}
          className="z-50 min-w-40 rounded-md border border-line bg-page p-1 text-sm shadow-lg"
        >
          {items.map((item) => (
            <DropdownMenu.Item
              key={item.label}
              onSelect={item.onSelect}
              className={`rounded px-2 py-1.5 outline-none data-[highlighted]:bg-raised ${item.bad ? 'text-bad' : ''}`}
            >
              {item.label}
            </DropdownMenu.Item>
          ))}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  )
}

/** Something failed, or has to be known: what happened, and the next step. */
export function Note({ bad = false, children }: { bad?: boolean; children: ReactNode }) {
  return (
    <div role={bad ? 'alert' : 'note'} className={`rounded-md px-3 py-2 text-sm ${bad ? 'bg-bad-back text-bad' : 'bg-warn-back text-warn'}`}>
      {children}
    </div>
  )
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="px-1 py-6 text-center text-sm text-soft">{children}</p>
}
