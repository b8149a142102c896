import './styles.css'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { createRoot } from 'react-dom/client'
import { App, fetchAhead } from './app'
import { firstText, LookProvider } from './i18n'
import { ToastProvider } from './ui/toasts'

// What a thread's news makes stale is read anew; nothing is read again just because a window was looked at.
const queries = new QueryClient({ defaultOptions: { queries: { staleTime: 30_000, refetchOnWindowFocus: false, retry: 1 } } })

const first = await firstText()
createRoot(document.getElementById('root')!).render(
  <QueryClientProvider client={queries}>
    <LookProvider first={first}>
      <ToastProvider>
        <App />
      </ToastProvider>
    </LookProvider>
  </QueryClientProvider>,
)
setTimeout(() => void fetchAhead(), 500)
