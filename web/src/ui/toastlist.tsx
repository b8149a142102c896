import { X } from 'lucide-react'
import { Toast } from 'radix-ui'
import { useText } from '../i18n'
import { Button, IconButton } from './basics'
import type { Notice } from './toasts'

export default function ToastList({ notices, onGone }: { notices: Notice[]; onGone: (id: number) => void }) {
  const t = useText()
  return (
    <Toast.Provider label={t.notice} duration={9000}>
      {notices.map((notice) => (
        <Toast.Root
          key={notice.id}
          type={notice.bad ? 'foreground' : 'background'}
          onOpenChange={(open) => !open && onGone(notice.id)}
          className={`flex items-start gap-2 rounded-md border bg-page p-3 text-sm shadow-lg ${notice.bad ? 'border-bad text-bad' : 'border-line'}`}
        >
          <Toast.Description className="min-w-0 flex-1 break-words">{notice.text}</Toast.Description>
          {notice.action && (
            <Toast.Action asChild altText={notice.action.label}>
              <Button onClick={notice.action.run}>{notice.action.label}</Button>
            </Toast.Action>
          )}
          <Toast.Close asChild>
            <IconButton name={t.close}>
              <X size={14} />
            </IconButton>
          </Toast.Close>
        </Toast.Root>
      ))}
      <Toast.Viewport className="fixed right-3 bottom-3 z-[60] flex w-[min(24rem,calc(100vw-1.5rem))] flex-col gap-2" />
    </Toast.Provider>
  )
}
